// Distributions over the vocabulary, from logits [n, vocabulary]: scores of given tokens, their gradient, and sampling.
#include "rows.h"

namespace {
constexpr int64_t BLOCK = 256;  // numbers that are summed in single precision before they join the total

template <class Number>
void score_rows(const Number* rows, ints token, int64_t n, int64_t size, float* logp, float* entropy, float* square,
                float* total) {
  floats scratch(size);
  for (int64_t i = 0; i < n; i++, rows += size) {
    numbers logits = widen(rows, size, scratch.data());
    const auto [most, finite] = peak(logits, size);
    double sum = 0, along = 0, squares = 0;
    for (int64_t first = 0; first < size; first += BLOCK) {
      const int64_t last = std::min(first + BLOCK, size);
      float a = 0, b = 0, c = 0;
#pragma omp simd reduction(+ : a, b, c)
      for (int64_t j = first; j < last; j++) {
        const float x = logits[j] - most, p = exp_of(x);
        a += p, b += p * x, c += p * p;
      }
      sum += a, along += b, squares += c;
    }
    const double rest = std::log(sum);
    total[i] = float(most + rest);
    logp[i] = finite * float(double(logits[token[i]]) - most - rest);
    entropy[i] = finite * float(rest - along / sum);
    if (square) square[i] = float(squares / (sum * sum));
  }
}
template <class Number>
void score_rows_backward(Number* rows, ints token, int64_t n, int64_t size, numbers total, numbers entropy, numbers pull,
                         numbers entropy_pull) {
  floats scratch(size);
  for (int64_t i = 0; i < n; i++, rows += size) {
    float* logits = float_row(rows, scratch.data());
    widen(rows, size, logits);
    const float of = pull[i], spread = entropy_pull ? entropy_pull[i] : 0, shift = entropy_pull ? entropy[i] : 0;
    const float t = total[i];
#pragma omp simd
    for (int64_t j = 0; j < size; j++) {
      const float l = logits[j] - t;
      logits[j] = -exp_of(l) * (of + spread * (l + shift));
    }
    logits[token[i]] += of;
    narrow(logits, size, rows);
  }
}
template <class Number>
void sample_rows(const Number* rows, numbers noise, int64_t n, int64_t size, int64_t* token, float* logp) {
  const int64_t blocks = (size + BLOCK - 1) / BLOCK;
  std::vector<double> ends(blocks);
  floats mass(size), scratch(size);
  for (int64_t i = 0; i < n; i++, rows += size) {
    numbers logits = widen(rows, size, scratch.data());
    const auto [most, finite] = peak(logits, size);
    double sum = 0;
    for (int64_t b = 0; b < blocks; b++) {
      const int64_t first = b * BLOCK, last = std::min(first + BLOCK, size);
      float part = 0;
#pragma omp simd reduction(+ : part)
      for (int64_t j = first; j < last; j++) part += mass[j] = exp_of(logits[j] - most);
      ends[b] = sum += part;
    }
    int64_t at;
    if (noise) {
      const double target = double(noise[i]) * sum;
      const int64_t b = std::min<int64_t>(std::upper_bound(ends.begin(), ends.end(), target) - ends.begin(), blocks - 1);
      double reached = b ? ends[b - 1] : 0;
      const int64_t last = std::min((b + 1) * BLOCK, size);
      at = b * BLOCK;
      while (at + 1 < last && (reached += mass[at]) <= target) at++;
    } else {
      at = std::min(std::find(logits, logits + size, most) - logits, size - 1);  // NaN: none
    }
    token[i] = at, logp[i] = finite * float(double(logits[at]) - most - std::log(sum));
  }
}}  // namespace

// Logits and the pull on them are bfloat16 where `bf16` is set.
extern "C" {
// Log-probability of each token, entropy of its distribution, Σ p² (unless null), and the logarithm of Σ e^logit [n].
void scores_forward(const void* logits, ints token, int64_t n, int64_t size, float* logp, float* entropy, float* square,
                    float* total, bool bf16) {
  bf16 ? score_rows((const bfloat16*)logits, token, n, size, logp, entropy, square, total)
       : score_rows((numbers)logits, token, n, size, logp, entropy, square, total);
}
// Put the pull on the logits in their place, given that on log-probabilities [n] and, unless null, on entropies [n].
void scores_backward(void* logits, ints token, int64_t n, int64_t size, numbers total, numbers entropy, numbers pull,
                     numbers entropy_pull, bool bf16) {
  bf16 ? score_rows_backward((bfloat16*)logits, token, n, size, total, entropy, pull, entropy_pull)
       : score_rows_backward((float*)logits, token, n, size, total, entropy, pull, entropy_pull);
}
// One token of each row: the likeliest, or, given `noise` [n], the inverse of the cumulative distribution there; and
// its log-probability.
void sample(const void* logits, numbers noise, int64_t n, int64_t size, int64_t* token, float* logp, bool bf16) {
  bf16 ? sample_rows((const bfloat16*)logits, noise, n, size, token, logp)
       : sample_rows((numbers)logits, noise, n, size, token, logp);
}
}
