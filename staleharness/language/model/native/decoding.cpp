// Attention of one new token per row to its prompt, which neighbouring rows share, and to the row's own tokens. Keys of
// prompts are stored turned, [head, tokens], all else straight, [tokens, head], for each group of heads.
#include "rows.h"

namespace {
// Scores of `n` keys under one query of `head` numbers.
void dots(numbers query, numbers key, int64_t n, int64_t head, float* s) {
  for (int64_t j = 0; j < n; j++, key += head) {
    vec sum = {};
    for (int64_t d = 0; d < head; d += V) sum += load(query + d) * load(key + d);
    s[j] = ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
  }
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
        for (int64_t h = 0; h < each; h++) dots(x + h * head, to_keys, own, head, s + h * all + wide);
      }
      product(sums.data(), head, 1, old_keys, width, scores.data(), all, count * each, wide, head, false);
      for (int64_t r = 0; r < count * each; r++) {
        float* s = scores.data() + r * all;
        std::fill(s + length, s + wide, -1e30f);
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
