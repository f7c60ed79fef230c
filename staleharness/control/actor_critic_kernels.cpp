// The arithmetic of learner=native: tanh networks, a Gaussian, the clipped value loss and AdamW. native_actor_critic.py builds
// and calls it. Matrices are row-major; inside, rows are padded with zeros to whole vectors (lengths marked +). A row of a
// product has the same bits whatever stands beside it, so actors and the learner's minibatches agree exactly.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace {
constexpr int V = 8;        // floats in a vector
constexpr int CHUNK = 256;  // terms of a sum that are added up before they join the total: less rounding
typedef float vec __attribute__((vector_size(4 * V), aligned(4)));
typedef std::vector<float> floats; typedef const float* numbers; typedef const int64_t* ints;
inline vec load(numbers p) { return *reinterpret_cast<const vec*>(p); }
inline vec& at(float* p) { return *reinterpret_cast<vec*>(p); }
inline int64_t padded(int64_t n) { return (n + V - 1) / V * V; }
// Eigen's rational approximation of tanh (error below 1e-6). NaN stays NaN.
inline vec tanh_of(vec x) {
  const vec limit = 7.90531110763549805f - vec{};
  x = limit < x ? limit : x < -limit ? -limit : x;
  const vec s = x * x;
  vec p = s * (s * -2.76076847742355e-16f + 2.00018790482477e-13f) - 8.60467152213735e-11f;
  p = s * (s * (s * p + 5.12229709037114e-08f) + 1.48572235717979e-05f) + 6.37261928875436e-04f;
  const vec q = s * (s * 1.19825839466702e-06f + 1.18534705686654e-04f) + 2.26843463243900e-03f;
  return x * (s * p + 4.89352455891786e-03f) / (s * q + 4.89352518554385e-03f);
}
// C[rows, 8 S] (+)= X W over `terms`, where X(r, k) = x[r * row + k * step]; W and C have rows of `width`.
template <int R, int S>
void tiles(numbers x, int64_t row, int64_t step, numbers w, float* c, int rows, int64_t width, int terms, bool add) {
  for (; rows >= R; rows -= R, x += R * row, c += R * width) {
    vec sum[R][S] = {};
    for (int k = 0; k < terms; k++)
      for (int s = 0; s < S; s++)
        for (int r = 0; r < R; r++) sum[r][s] += x[r * row + k * step] * load(w + k * width + V * s);
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++) at(c + r * width + V * s) = add ? at(c + r * width + V * s) + sum[r][s] : sum[r][s];
  }
  if constexpr (R > 1) tiles<1, S>(x, row, step, w, c, rows, width, terms, add);
}
void product(numbers x, int64_t row, int64_t step, numbers w, float* c, int rows, int64_t width, int terms) {
  for (int k = 0; k < terms; k += CHUNK, x += CHUNK * step, w += CHUNK * width) {
    int64_t j = 0, some = std::min(CHUNK, terms - k);
    for (; j + 4 * V <= width; j += 4 * V) tiles<3, 4>(x, row, step, w + j, c + j, rows, width, some, k > 0);
    for (; j < width; j += V) tiles<8, 1>(x, row, step, w + j, c + j, rows, width, some, k > 0);
  }
}
struct Network {
  std::vector<int> width;                      // of the input, the hidden layers and the output
  std::vector<floats> weight, turned, active;  // W and b [in + 1, out+], Wᵀ [out, in+]; inputs of layers [n, in+]
  floats pull, before, packed;  // ∂L/∂ a layer's output [n, out+], its input [n, in+], its W and b [in + 1, out+]
  int64_t size = 0;             // of its parameters
  Network(int hidden, const int* widths, int outputs) : width(widths, widths + hidden + 1) {
    width.push_back(outputs), weight.resize(hidden + 1), turned.resize(hidden + 1), active.resize(hidden + 2);
    for (int l = 0; l <= hidden; l++) size += (width[l] + 1) * int64_t(width[l + 1]);
  }
  void read(numbers theta, bool turn) {
    for (size_t l = 0; l < weight.size(); l++) {
      const int64_t in = width[l], out = width[l + 1], wide = padded(out), tall = padded(in);
      weight[l].resize((in + 1) * wide), turned[l].resize(turn && l > 0 ? out * tall : 0);
      for (int64_t i = 0; i <= in; i++) std::copy_n(theta + i * out, out, &weight[l][i * wide]);
      for (int64_t o = 0; o < out && !turned[l].empty(); o++)
        for (int64_t i = 0; i < in; i++) turned[l][o * tall + i] = theta[i * out + o];
      theta += (in + 1) * out;
    }
  }
  // The network's input, from raw observations [*, D] at `index` [n], or the first n.
  void observe(numbers obs, ints index, numbers mean, numbers inverse_std, int n) {
    const int64_t D = width[0], wide = padded(D);
    active[0].resize(n * wide);
    for (int64_t r = 0; r < n; r++)
      for (int64_t d = 0, from = (index ? index[r] : r) * D; d < D; d++)
        active[0][r * wide + d] = std::clamp((obs[from + d] - mean[d]) * inverse_std[d], -10.0f, 10.0f);
  }
  // Outputs [n, outputs], to the rows `index` of `output`, or the first n.
  void forward(int n, ints index, float* output) {
    for (size_t l = 0; l < weight.size(); l++) {
      const int64_t wide = padded(width[l + 1]);
      active[l + 1].resize(n * wide);
      product(active[l].data(), padded(width[l]), 1, weight[l].data(), active[l + 1].data(), n, wide, width[l]);
      for (int64_t i = 0; i < n * wide; i += V) {
        const vec x = load(&active[l + 1][i]) + load(&weight[l][width[l] * wide + i % wide]);
        at(&active[l + 1][i]) = l + 1 < weight.size() ? tanh_of(x) : x;
      }
    }
    const int64_t out = width.back(), wide = padded(out);
    for (int64_t r = 0; r < n; r++) std::copy_n(&active.back()[r * wide], out, output + (index ? index[r] : r) * out);
  }
  // ∂L/∂θ of the last `forward`, from ∂L/∂output [n, outputs].
  void backward(numbers of_output, float* gradient) {
    const int64_t outputs = width.back(), n = active.back().size() / padded(outputs);
    const float one = 1.0f;
    pull.assign(active.back().size(), 0.0f);
    for (int64_t r = 0; r < n; r++) std::copy_n(of_output + r * outputs, outputs, &pull[r * padded(outputs)]);
    gradient += size;
    for (int64_t l = weight.size() - 1; l >= 0; l--, std::swap(pull, before)) {
      const int64_t in = width[l], out = width[l + 1], wide = padded(out), tall = padded(in);
      packed.resize((in + 1) * wide);
      product(active[l].data(), 1, tall, pull.data(), packed.data(), in, wide, n);
      product(&one, 0, 0, pull.data(), &packed[in * wide], 1, wide, n);
      gradient -= (in + 1) * out;
      for (int64_t i = 0; i <= in; i++) std::copy_n(&packed[i * wide], out, gradient + i * out);
      if (l == 0) break;
      before.resize(n * tall);
      product(pull.data(), wide, 1, turned[l].data(), before.data(), n, tall, out);
      for (int64_t i = 0; i < n * tall; i += V) at(&before[i]) *= 1.0f - load(&active[l][i]) * load(&active[l][i]);
    }
  }
};
typedef std::vector<Network> networks;
}  // namespace
extern "C" {
// Networks that share the widths of the observation and of the hidden layers.
void* networks_new(int count, int hidden, const int* widths, const int* outputs) {
  auto* all = new networks;
  for (int k = 0; k < count; k++) all->emplace_back(hidden, widths, outputs[k]);
  return all;
}
void networks_free(networks* all) { delete all; }
// Versions of the actor, about to act with the parameters `thetas` [K].
void actors_read(networks* all, const numbers* thetas) {
  for (Network& actor : *all) actor.read(*thetas++, false);
}
// Outputs [N, A] for observations [N, D]: of rows `order` [N], `counts` [K] by each version with its statistics [K, D].
// Of normals also the N A = `size` numbers of actions, outputs + std · noise.
void actors_act(networks* all, numbers obs, numbers mean, numbers inverse_std, ints order, ints counts, float* output,
                numbers std, numbers noise, int64_t size, float* action) {
  for (Network& actor : *all) {
    actor.observe(obs, order, mean, inverse_std, *counts), actor.forward(*counts, order, output);
    mean += actor.width[0], inverse_std += actor.width[0], order += *counts++;
  }
  for (int64_t i = 0; i < size; i++) action[i] = output[i] + std[i] * noise[i];
}
// log π(a|s) [n] of actions at `index` [n], or the first n: means [n, A], log σ [n, A], or one [A] that is `shared`.
void gaussian_logp(numbers a, ints index, numbers mean, numbers log_std, bool shared, int n, int A, float* logp) {
  std::fill_n(logp, n, 0.0f);
  for (int r = 0; r < n; r++, mean += A, log_std += shared ? 0 : A)
    for (int i = 0; i < A; i++) {
      const float z = (a[(index ? index[r] : r) * A + i] - mean[i]) * expf(-log_std[i]);
      logp[r] += -0.5f * z * z - log_std[i] - 0.9189385332046727f;
    }
}
// Actor and critic, with `sigmas` parameters (log σ) between theirs: outputs [n, A] and values [n]. Where there are
// actions of a Gaussian, also log π [n] of those at `index`, and the entropy is added to what is there.
void learner_forward(networks* all, numbers theta, int sigmas, numbers obs, ints index, numbers mean,
                     numbers inverse_std, int n, float* output, float* value, numbers action, float* logp, float* entropy) {
  Network &actor = all->front(), &critic = all->back();
  actor.read(theta, true), critic.read(theta + actor.size + sigmas, true);
  actor.observe(obs, index, mean, inverse_std, n), critic.active[0] = actor.active[0];
  actor.forward(n, nullptr, output), critic.forward(n, nullptr, value);
  if (action) gaussian_logp(action, index, output, theta + actor.size, true, n, sigmas, logp);
  for (int i = 0; action && i < sigmas; i++) *entropy += theta[actor.size + i] + 1.4189385332046727f;
}
// ∂L/∂θ from ∂L/∂outputs [n, A], ∂L/∂log σ and ∂L/∂values [n].
void learner_backward(networks* all, numbers of_output, int sigmas, numbers of_log_std, numbers of_value, float* to) {
  Network &actor = all->front(), &critic = all->back();
  actor.backward(of_output, to), critic.backward(of_value, to + actor.size + sigmas);
  std::copy_n(of_log_std, sigmas, to + actor.size);
}
// From ∂L/∂log π [n]: ∂L/∂mean [n, A]; ∂L/∂log σ [A] is added to what is there.
void gaussian_backward(numbers a, ints index, numbers mean, numbers log_std, numbers of_logp, int n, int A,
                       float* of_mean, float* of_std) {
  for (int i = 0; i < A; i++) {
    double sum = 0.0;
    for (int r = 0; r < n; r++) {
      const float precision = expf(-log_std[i]), z = (a[index[r] * A + i] - mean[r * A + i]) * precision;
      of_mean[r * A + i] = of_logp[r] * z * precision;
      sum += of_logp[r] * (z * z - 1.0f);
    }
    of_std[i] += static_cast<float>(sum);
  }
}
// The loss of functional_mlp.py, and `coef` times its gradient [n] with respect to the values.
void value_loss(numbers value, numbers target, numbers start, int n, float clip, float coef, float* loss, float* to) {
  double total = 0.0;
  for (int r = 0; r < n; r++) {
    const float moved = value[r] - start[r], near = std::clamp(moved, -clip, clip);
    const float miss = value[r] - target[r], other = start[r] + near - target[r], a = miss * miss, b = other * other;
    const float share = clip <= 0.0f || a > b ? 1.0f : a < b ? 0.0f : 0.5f;  // of the unclipped error
    to[r] = coef / n * (miss * share + other * (near == moved) * (1.0f - share));
    total += share > 0.0f ? a : b;
  }
  *loss = static_cast<float>(0.5 * total / n);
}
// Scale the gradient to a norm of at most `limit`, count and take a step of AdamW; `norm` is the norm before.
void adamw(float* theta, float* gradient, float* m, float* v, float* count, int64_t size, float limit, float rate,
           float epsilon, float decay, float* norm) {
  float squares = 0.0f, sums[V] = {};
  for (int64_t i = 0; i < size; i++) sums[i % V] += gradient[i] * gradient[i];
  for (float sum : sums) squares += sum;
  *norm = std::sqrt(squares), *count += 1.0f;
  const float scale = *norm + 1e-6f > limit ? limit / (*norm + 1e-6f) : 1.0f;
  const float step = rate / (1.0 - std::pow(0.9, *count)), root = 1.0 / std::sqrt(1.0 - std::pow(0.999, *count));
  for (int64_t i = 0; i < size; i++) {
    const float g = gradient[i] *= scale;
    m[i] += 0.1f * (g - m[i]);
    v[i] = 0.999f * v[i] + 0.001f * g * g;
    theta[i] -= rate * decay * theta[i] + step * m[i] / (std::sqrt(v[i]) * root + epsilon);
  }
}
}  // extern "C"
