// Shared by the files of this folder: vectors, bfloat16, e^x, products of small matrices, softmax.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {
constexpr int V = 8;  // floats in a vector
typedef float vec __attribute__((vector_size(4 * V), aligned(4)));
typedef int32_t ints_of_vec __attribute__((vector_size(4 * V)));
typedef const float* numbers;
typedef const int64_t* ints;
typedef std::vector<float> floats;
inline vec load(numbers p) { return *reinterpret_cast<const vec*>(p); }
inline vec& at(float* p) { return *reinterpret_cast<vec*>(p); }
inline int64_t padded(int64_t n) { return (n + V - 1) / V * V; }
// The upper half of a float, which is rounded to the nearest, ties to even; NaN stays NaN.
struct bfloat16 { uint16_t bits; };
inline numbers widen(numbers x, int64_t, float*) { return x; }
// `n` numbers as float, in `to`.
inline numbers widen(const bfloat16* x, int64_t n, float* to) {
  for (int64_t j = 0; j < n; j++) {
    const uint32_t bits = uint32_t(x[j].bits) << 16;
    std::memcpy(to + j, &bits, 4);
  }
  return to;
}
// Where numbers that become `to` are computed: there, or for bfloat16 in `scratch`, to be rounded by `narrow`.
inline float* float_row(float* to, float*) { return to; }
inline float* float_row(bfloat16*, float* scratch) { return scratch; }
inline void narrow(numbers, int64_t, float*) {}
inline void narrow(numbers x, int64_t n, bfloat16* to) {
  for (int64_t j = 0; j < n; j++) {
    uint32_t bits;
    std::memcpy(&bits, x + j, 4);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    to[j].bits = uint16_t((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
  }
}
// e^x for x <= 88, as in Cephes' expf: relative error below 2e-7; 0 is 1e-38.
inline float exp_of(float x) {
  union { float number; int32_t bits; } power;
  x = x < -87.3f ? -87.3f : x;
  const float shifted = x * 1.44269504088896341f + 12582912.0f, n = shifted - 12582912.0f;
  power.number = shifted;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r +
             1.6666665459e-1f) * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  power.bits = int32_t(uint32_t(power.bits) << 23) + 0x3f800000;
  return p * power.number;
}
// C[rows, 8 S] (+)= X W over `terms`, where X(r, k) = x[r * row + k * step]; W and C have rows of w_row and c_row.
template <int R, int S>
void tiles(numbers x, int64_t row, int64_t step, numbers w, int64_t w_row, float* c, int64_t c_row, int64_t rows,
           int64_t terms, bool add) {
  for (; rows >= R; rows -= R, x += R * row, c += R * c_row) {
    vec sum[R][S] = {};
    for (int64_t k = 0; k < terms; k++)
      for (int s = 0; s < S; s++)
        for (int r = 0; r < R; r++) sum[r][s] += x[r * row + k * step] * load(w + k * w_row + V * s);
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++) at(c + r * c_row + V * s) = add ? at(c + r * c_row + V * s) + sum[r][s] : sum[r][s];
  }
  if constexpr (R > 1) tiles<1, S>(x, row, step, w, w_row, c, c_row, rows, terms, add);
}
// C[rows, width] (+)= X W; `width` is a multiple of V.
void product(numbers x, int64_t row, int64_t step, numbers w, int64_t w_row, float* c, int64_t c_row, int64_t rows,
             int64_t width, int64_t terms, bool add) {
  int64_t j = 0;
  for (; j + 4 * V <= width; j += 4 * V) tiles<3, 4>(x, row, step, w + j, w_row, c + j, c_row, rows, terms, add);
  for (; j + 2 * V <= width; j += 2 * V) tiles<6, 2>(x, row, step, w + j, w_row, c + j, c_row, rows, terms, add);
  for (; j < width; j += V) tiles<8, 1>(x, row, step, w + j, w_row, c + j, c_row, rows, terms, add);
}
// The largest of `n` numbers, and 1; or NaN in place of 1 where one of them is not finite, which the compiler may assume
// of none. It is found in their bits, and what it multiplies is NaN.
struct Peak { float most, finite; };
Peak peak(numbers x, int64_t n) {
  constexpr int C = 4;  // vectors at a time, as a maximum takes several cycles
  vec most[C];
  ints_of_vec size[C] = {};
  std::fill(most, most + C, vec{} - 3e38f);
  auto take = [&](int64_t j, int c) {
    const vec y = load(x + j);
    const ints_of_vec bits = (ints_of_vec)y & 0x7fffffff;
    most[c] = y > most[c] ? y : most[c], size[c] = bits > size[c] ? bits : size[c];
  };
  int64_t j = 0;
  for (; j + C * V <= n; j += C * V)
    for (int c = 0; c < C; c++) take(j + V * c, c);
  for (; j + V <= n; j += V) take(j, 0);
  union { float number; int32_t bits; } each, factor;
  float top = -3e38f;
  int32_t largest = 0;
  auto join = [&](float number) {
    each.number = number, top = std::max(top, number), largest = std::max(largest, each.bits & 0x7fffffff);
  };
  for (; j < n; j++) join(x[j]);
  for (int c = 0; c < C; c++)
    for (int i = 0; i < V; i++) top = std::max(top, most[c][i]), largest = std::max(largest, size[c][i]);
  factor.bits = largest < 0x7f800000 ? 0x3f800000 : 0x7fc00000;
  return {top, factor.number};
}
// Softmax of `n` scores in place; returns the logarithm of their sum of exponentials.
float softmax(float* s, int64_t n, float scale) {
  const auto [most, finite] = peak(s, n);
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; j++) sum += s[j] = exp_of(scale * (s[j] - most));
  const float share = finite / sum;
#pragma omp simd
  for (int64_t j = 0; j < n; j++) s[j] *= share;
  return scale * most + std::log(sum);
}
}  // namespace
