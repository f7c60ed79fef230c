// Attention of one new token per row to its prompt, which neighbouring rows share, and to the row's own tokens. Keys of
// prompts are stored turned, [head, tokens], all else straight, [tokens, head], for each group of heads.
#include "rows.h"

namespace {
constexpr int64_t LINE = 16;  // floats in a line of the processor's cache
typedef float half __attribute__((vector_size(2 * V)));
half halve(vec x) { return half{x[0], x[1], x[2], x[3]} + half{x[4], x[5], x[6], x[7]}; }
// Sums of the numbers of each of four vectors.
half sums_of(const vec* x) {
  const half a = halve(x[0]), b = halve(x[1]), c = halve(x[2]), d = halve(x[3]);
  const half ab = half{a[0], b[0], a[1], b[1]} + half{a[2], b[2], a[3], b[3]};
  const half cd = half{c[0], d[0], c[1], d[1]} + half{c[2], d[2], c[3], d[3]};
  return half{ab[0], ab[1], cd[0], cd[1]} + half{ab[2], ab[3], cd[2], cd[3]};
}
// Have the processor read `n` floats from two places that are needed soon; waiting for them takes longer than computing.
// A place beyond the end of an array does no harm.
void prefetch(numbers a, numbers b, int64_t n) {
  for (int64_t i = 0; i < n; i += LINE) __builtin_prefetch(a + i), __builtin_prefetch(b + i);
}
// Scores of `n` keys under `heads` queries, both of `head` numbers; those of a query lie `row` apart. Prefetches as
// many of the next keys and values.
template <int Q, int K>
void dots(numbers query, numbers keys, int64_t n, int64_t heads, int64_t head, float* s, int64_t row,
          numbers next_keys, numbers values) {
  int64_t h = 0;
  for (; h + Q <= heads; h += Q, query += Q * head, s += Q * row) {
    int64_t j = 0;
    for (; j + K <= n; j += K) {
      if (h == 0) prefetch(next_keys + j * head, values + j * head, K * head);
      vec sum[Q][4] = {};
      for (int64_t d = 0; d < head; d += V)
        for (int k = 0; k < K; k++)
          for (int q = 0; q < Q; q++) sum[q][k] += load(query + q * head + d) * load(keys + (j + k) * head + d);
      for (int q = 0; q < Q; q++) {
        const half sums = sums_of(sum[q]);
        for (int k = 0; k < K; k++) s[q * row + j + k] = sums[k];
      }
    }
    const int64_t done = j * head;
    if constexpr (K > 1) dots<Q, 1>(query, keys + done, n - j, Q, head, s + j, row, next_keys + done, values + done);
  }
  if constexpr (Q > 1) dots<1, K>(query, keys, n, heads - h, head, s, row, next_keys, values);
}
}  // namespace

extern "C" {
// Store keys and values of prompts: qkv [n, ...], sequences as of layers.cpp; keys [count, groups, head, width], values
// [count, groups, width, head].
void store(numbers qkv, ints sequences, int64_t count, int64_t heads, int64_t groups, int64_t head, int64_t width,
           float* keys, float* values) {
  const int64_t row = (heads + 2 * groups) * head;
  for (int64_t u = 0; u < count; u++, sequences += 4)
    for (int64_t g = 0; g < groups; g++, keys += head * width, values += width * head)
      for (int64_t j = 0; j < sequences[1]; j++) {
        numbers k = qkv + (sequences[0] + j) * row + (heads + g) * head, v = k + groups * head;
        for (int64_t d = 0; d < head; d++) keys[d * width + j] = k[d], values[j * head + d] = v[d];
      }
}
// qkv [n, ...] of the new tokens, which become number `column` of their rows; prompt [n] of each row, equal ones side by
// side, and `tokens` of each prompt; own keys and values [n, groups, columns, head]; out [n, heads · head].
void decode(numbers qkv, ints prompt, int64_t n, int64_t heads, int64_t groups, int64_t head, int64_t column,
            float scale, numbers keys, numbers values, ints tokens, int64_t width, float* own_keys, float* own_values,
            int64_t columns, float* out) {
  const int64_t row = (heads + 2 * groups) * head, each = heads / groups, own = column + 1, size = head * columns;
  floats scores, sums;
  for (int64_t first = 0, last; first < n; first = last) {
    for (last = first + 1; last < n && prompt[last] == prompt[first];) last++;
    const int64_t u = prompt[first], count = last - first, length = tokens[u], wide = padded(length);
    const int64_t all = wide + own;
    scores.resize(count * each * all), sums.resize(count * each * head);
    for (int64_t g = 0; g < groups; g++) {
      numbers old_keys = keys + (u * groups + g) * head * width, old_values = values + (u * groups + g) * head * width;
      for (int64_t r = 0; r < count; r++) {
        numbers x = qkv + (first + r) * row + g * each * head, k = qkv + (first + r) * row + (heads + g) * head;
        float *to_keys = own_keys + ((first + r) * groups + g) * size, *s = scores.data() + r * each * all;
        float* to_values = own_values + ((first + r) * groups + g) * size;
        std::copy(k, k + head, to_keys + column * head);
        std::copy(k + groups * head, k + (groups + 1) * head, to_values + column * head);
        std::copy(x, x + each * head, sums.data() + r * each * head);
        const int64_t follower = r + 1 < count ? r + 1 : g + 1 < groups ? 0 : count;  // row whose turn is next
        const int64_t next = (first + follower) * groups + (r + 1 < count ? g : (g + 1) % groups);
        dots<3, 4>(x, to_keys, own, each, head, s + wide, all, own_keys + next * size, to_values);
      }
      product(sums.data(), head, 1, old_keys, width, scores.data(), all, count * each, wide, head, false);
      const int64_t part = head * width / (count * each);  // of the next group's keys and values
      for (int64_t r = 0; r < count * each; r++) {
        float* s = scores.data() + r * all;
        std::fill(s + length, s + wide, -1e30f);
        prefetch(old_keys + head * width + r * part, old_values + head * width + r * part, part);
        softmax(s, wide + own, scale);
      }
      product(scores.data(), all, 1, old_values, head, sums.data(), head, count * each, head, length, false);
      for (int64_t r = 0; r < count; r++) {
        numbers of = own_values + ((first + r) * groups + g) * size;
        float* sum = sums.data() + r * each * head;
        product(scores.data() + r * each * all + wide, all, 1, of, head, sum, head, each, head, own, true);
        std::copy(sum, sum + each * head, out + ((first + r) * heads + g * each) * head);
      }
    }
  }
}
}
