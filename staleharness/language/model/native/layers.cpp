// The arithmetic of learner=native between matrix products, without the vocabulary. Tokens lie one after the other
// [n, width], without padding; a sequence is a stretch of them, which also attends to one other stretch, its prompt. A
// token's numbers do not depend on the tokens of other sequences.
#include "rows.h"

namespace {
// Keys or values of a sequence's prompt and of itself [L, head], and, if `turned`, their transpose [head, L+].
struct Reach {
  int64_t prompt, begin, count, own, row;  // places of the stretches, tokens of the first and of the second
  int64_t total() const { return count + own; }
  int64_t place(int64_t j) const { return j < count ? prompt + j : begin + j - count; }
  void gather(numbers from, int64_t head, float* straight, float* turned) const {
    const int64_t width = padded(total());
    if (turned) std::fill(turned, turned + head * width, 0.0f);
    for (int64_t j = 0; j < total(); j++) {
      numbers x = from + place(j) * row;
      if (straight) std::copy(x, x + head, straight + j * head);
      for (int64_t d = 0; turned && d < head; d++) turned[d * width + j] = x[d];
    }
  }
};
template <class Number>
void norm_rows(numbers x, const Number* more, numbers w, int64_t n, int64_t d, float epsilon, float* sum, Number* y,
               float* scale) {
  floats scratch(d);
  for (int64_t i = 0; i < n; i++, x += d, y += d) {
    float square = 0;
    if (more) {
      numbers m = widen(more, d, scratch.data());
#pragma omp simd reduction(+ : square)
      for (int64_t j = 0; j < d; j++) sum[j] = x[j] + m[j], square += sum[j] * sum[j];
    } else {
#pragma omp simd reduction(+ : square)
      for (int64_t j = 0; j < d; j++) square += x[j] * x[j];
    }
    const float s = scale[i] = 1 / std::sqrt(square / d + epsilon);
    numbers from = more ? sum : x;
    float* to = float_row(y, scratch.data());
#pragma omp simd
    for (int64_t j = 0; j < d; j++) to[j] = from[j] * s * w[j];
    narrow(to, d, y);
    if (more) more += d, sum += d;
  }
}
template <class Number>
void norm_rows_backward(numbers x, numbers w, numbers scale, const Number* pull, int64_t n, int64_t d, float* of_x,
                        float* of_w) {
  floats scratch(d);
  for (int64_t i = 0; i < n; i++, x += d, pull += d, of_x += d) {
    numbers of = widen(pull, d, scratch.data());
    const float s = scale[i];
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t j = 0; j < d; j++) dot += of[j] * w[j] * x[j];
    const float along = dot * s * s * s / d;
#pragma omp simd
    for (int64_t j = 0; j < d; j++) {
      of_w[j] += of[j] * x[j] * s;
      of_x[j] += s * w[j] * of[j] - along * x[j];
    }
  }
}
template <class Number>
void gate_rows(const Number* x, int64_t n, int64_t width, Number* y) {
  floats scratch(3 * width);
  for (int64_t i = 0; i < n; i++, x += 2 * width, y += width) {
    numbers from = widen(x, 2 * width, scratch.data());
    float* to = float_row(y, scratch.data() + 2 * width);
#pragma omp simd
    for (int64_t j = 0; j < width; j++) to[j] = from[j] / (1 + exp_of(std::min(-from[j], 88.0f))) * from[width + j];
    narrow(to, width, y);
  }
}
template <class Number>
void gate_rows_backward(Number* x, int64_t n, int64_t width, Number* pull) {
  floats scratch(3 * width);
  for (int64_t i = 0; i < n; i++, x += 2 * width, pull += width) {
    float *gates = float_row(x, scratch.data()), *pulls = float_row(pull, scratch.data() + 2 * width);
    widen(x, 2 * width, gates), widen(pull, width, pulls);
#pragma omp simd
    for (int64_t j = 0; j < width; j++) {
      const float gate = gates[j], up = gates[width + j], on = 1 / (1 + exp_of(std::min(-gate, 88.0f))), of = pulls[j];
      gates[j] = of * up * on * (1 + gate * (1 - on));
      gates[width + j] = of * gate * on;
      pulls[j] = gate * on * up;
    }
    narrow(gates, 2 * width, x), narrow(pulls, width, pull);
  }
}
}  // namespace

// Factors and results of products of matrices are bfloat16 where `bf16` is set: `more`, `y` and the pull on it, gates and
// ups. All else is float.
extern "C" {
// sum = x (+ more), y = sum · w · scale with scale = 1 / sqrt(mean square + epsilon) [n]; `sum` may be x, or null.
void norm_forward(numbers x, const void* more, numbers w, int64_t n, int64_t d, float epsilon, float* sum, void* y,
                  float* scale, bool bf16) {
  bf16 ? norm_rows(x, (const bfloat16*)more, w, n, d, epsilon, sum, (bfloat16*)y, scale)
       : norm_rows(x, (numbers)more, w, n, d, epsilon, sum, (float*)y, scale);
}
// of_x += the pull on x; of_w += that on w. `pull` is on y.
void norm_backward(numbers x, numbers w, numbers scale, const void* pull, int64_t n, int64_t d, float* of_x, float* of_w,
                   bool bf16) {
  bf16 ? norm_rows_backward(x, w, scale, (const bfloat16*)pull, n, d, of_x, of_w)
       : norm_rows_backward(x, w, scale, (numbers)pull, n, d, of_x, of_w);
}
// Rotate `heads` heads of each token by the angles of its position (sign = 1), or back (−1), in place.
void rotate(float* x, int64_t row, ints position, numbers cos, numbers sin, int64_t n, int64_t heads, int64_t head,
            float sign) {
  const int64_t half = head / 2;
  for (int64_t i = 0; i < n; i++) {
    numbers c = cos + position[i] * head, s = sin + position[i] * head + half;  // the first half has the sign −1
    float* a = x + i * row;
    for (int64_t h = 0; h < heads; h++, a += head)
#pragma omp simd
      for (int64_t j = 0; j < half; j++) {
        const float u = a[j], v = a[half + j];
        a[j] = u * c[j] - sign * v * s[j];
        a[half + j] = v * c[j] + sign * u * s[j];
      }
  }
}
// Causal attention. qkv [n, (heads + 2 groups) · head]; sequences [count, 4]: begin, tokens, begin of the prompt, its
// tokens; out [n, heads · head], total [n, heads] the logarithms of the sums.
void attention_forward(numbers qkv, ints sequences, int64_t count, int64_t heads, int64_t groups, int64_t head,
                       float scale, float* out, float* total) {
  const int64_t row = (heads + 2 * groups) * head, each = heads / groups;
  floats turned, values, scores;
  for (int64_t i = 0; i < count; i++, sequences += 4) {
    const Reach reach{sequences[2], sequences[0], sequences[3], sequences[1], row};
    const int64_t all = reach.total(), width = padded(all), own = reach.own;
    turned.resize(head * width), values.resize(all * head), scores.resize(own * width);
    for (int64_t g = 0; g < groups; g++) {
      reach.gather(qkv + (heads + g) * head, head, nullptr, turned.data());
      reach.gather(qkv + (heads + groups + g) * head, head, values.data(), nullptr);
      for (int64_t h = g * each; h < (g + 1) * each; h++) {
        product(qkv + reach.begin * row + h * head, row, 1, turned.data(), width, scores.data(), width, own, width,
                head, false);
        for (int64_t t = 0; t < own; t++) {
          float* s = scores.data() + t * width;
          const int64_t seen = reach.count + t + 1;
          total[(reach.begin + t) * heads + h] = softmax(s, seen, scale);
          std::fill(s + seen, s + width, 0.0f);
        }
        product(scores.data(), width, 1, values.data(), head, out + (reach.begin * heads + h) * head, heads * head,
                own, head, all, false);
      }
    }
  }
}
// of_qkv += the pull on queries, keys and values, given that on `out`.
void attention_backward(numbers qkv, ints sequences, int64_t count, int64_t heads, int64_t groups, int64_t head,
                        float scale, numbers out, numbers total, numbers pull, float* of_qkv) {
  const int64_t row = (heads + 2 * groups) * head, each = heads / groups, wide = heads * head;
  floats keys, turned, values, weights, weight_metrics, of_keys, of_values;
  for (int64_t i = 0; i < count; i++, sequences += 4) {
    const Reach reach{sequences[2], sequences[0], sequences[3], sequences[1], row};
    const int64_t all = reach.total(), width = padded(all), own = reach.own;
    keys.resize(all * head), turned.resize(head * width), values.resize(head * width);
    weights.resize(own * width), weight_metrics.resize(own * width);
    for (int64_t g = 0; g < groups; g++) {
      reach.gather(qkv + (heads + g) * head, head, keys.data(), turned.data());
      reach.gather(qkv + (heads + groups + g) * head, head, nullptr, values.data());
      of_keys.assign(all * head, 0.0f), of_values.assign(all * head, 0.0f);
      for (int64_t h = g * each; h < (g + 1) * each; h++) {
        numbers query = qkv + reach.begin * row + h * head, of_out = pull + reach.begin * wide + h * head;
        product(query, row, 1, turned.data(), width, weights.data(), width, own, width, head, false);
        product(of_out, wide, 1, values.data(), width, weight_metrics.data(), width, own, width, head, false);
        for (int64_t t = 0; t < own; t++) {
          float *p = weights.data() + t * width, *d = weight_metrics.data() + t * width, dot = 0;
          numbers o = out + (reach.begin + t) * wide + h * head;
          for (int64_t j = 0; j < head; j++) dot += o[j] * of_out[t * wide + j];
          const float sum = total[(reach.begin + t) * heads + h];
          const int64_t seen = reach.count + t + 1;
#pragma omp simd
          for (int64_t j = 0; j < seen; j++) p[j] = exp_of(scale * p[j] - sum), d[j] = scale * p[j] * (d[j] - dot);
          std::fill(p + seen, p + width, 0.0f), std::fill(d + seen, d + width, 0.0f);
        }
        product(weights.data(), 1, width, of_out, wide, of_values.data(), head, all, head, own, true);
        product(weight_metrics.data(), 1, width, query, row, of_keys.data(), head, all, head, own, true);
        product(weight_metrics.data(), width, 1, keys.data(), head, of_qkv + reach.begin * row + h * head, row, own, head,
                all, true);
      }
      for (int64_t j = 0; j < all; j++) {
        float* to = of_qkv + reach.place(j) * row + (heads + g) * head;
        for (int64_t d = 0; d < head; d++) to[d] += of_keys[j * head + d], to[groups * head + d] += of_values[j * head + d];
      }
    }
  }
}
// y = silu(gate) · up, of gates and ups side by side [n, 2 width].
void gate_forward(const void* x, int64_t n, int64_t width, void* y, bool bf16) {
  bf16 ? gate_rows((const bfloat16*)x, n, width, (bfloat16*)y) : gate_rows((numbers)x, n, width, (float*)y);
}
// Put the pull on gates and ups in their place, and y again in the place of the pull on it.
void gate_backward(void* x, int64_t n, int64_t width, void* pull, bool bf16) {
  bf16 ? gate_rows_backward((bfloat16*)x, n, width, (bfloat16*)pull)
       : gate_rows_backward((float*)x, n, width, (float*)pull);
}
}
