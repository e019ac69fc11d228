/* An LSTM layer and the softmax in int8, for CPUs with AVX-512 VNNI. This file requires only libm.
 * cpu_native.py compiles it on first use, and prepares the arrays.
 *
 * Weights are stored as unsigned bytes q + 128, because the VNNI instruction multiplies unsigned and
 * signed integers. Subtracting 128 * sum(activations) from each sum gives the exact result:
 *     sum_k (q_w + 128) q_a - 128 sum_k q_a = sum_k q_w q_a
 *
 * Columns are grouped into tiles of 64. In the gate products, a tile contains the gates i, f, o, j
 * of 16 units, so that cells can be updated while the sums are still in registers. Within a tile,
 * four consecutive inputs of a column are adjacent:
 *     packed[tile][k / 4][vector 0..3][column 0..15][k % 4]
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t h, d;                  /* H and D, multiples of 16 */
    const uint8_t *wx, *wr, *wp;   /* packed weights; wp is NULL without a projection */
    const float *sx, *sr, *sp;     /* scale of each column, in tile order */
    const float *bias;             /* in tile order, including the constant of the forget gate */
    float cell_clip, proj_clip;    /* infinite: no clipping */
} Layer;

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define INLINE static inline __attribute__((always_inline)) TARGET

#define ROWS 6            /* rows per tile: 6 x 4 sums and 4 weight vectors fit into the registers */
#define CHUNK_TOKENS 128  /* approximate number of tokens for which W_x x is computed at once */

int elmo_supported(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}

/* Pack int8 weights q (n, k). n must be a multiple of 64, and k a multiple of 4. */
void elmo_pack(const int8_t *q, int64_t n, int64_t k, uint8_t *packed) {
    for (int64_t row = 0; row < n; row++) {
        uint8_t *target = packed + (row / 64) * 64 * k + (row % 64) * 4;
        const int8_t *source = q + row * k;
        for (int64_t i = 0; i < k; i += 4, target += 256)
            for (int j = 0; j < 4; j++) target[j] = (uint8_t)(source[i + j] + 128);
    }
}

/* Quantize a row to int8. Return the scale, and set offset to 128 * the sum of rounded values. */
TARGET static float quantize(const float *x, int64_t k, int8_t *q, int32_t *offset) {
    __m512 largest = _mm512_setzero_ps();
    for (int64_t i = 0; i < k; i += 16)
        largest = _mm512_max_ps(largest, _mm512_abs_ps(_mm512_loadu_ps(x + i)));
    float scale = _mm512_reduce_max_ps(largest) / 127.0f;
    __m512 inverse = _mm512_set1_ps(scale > 0 ? 1.0f / scale : 0.0f);
    __m512i sum = _mm512_setzero_si512();
    for (int64_t i = 0; i < k; i += 16) {
        __m512i r = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i), inverse));
        sum = _mm512_add_epi32(sum, r);
        _mm_storeu_si128((__m128i *)(q + i), _mm512_cvtsepi32_epi8(r));
    }
    *offset = 128 * _mm512_reduce_add_epi32(sum);
    return scale;
}

/* Quantize a row to 16 bits, 256 * high + low. Return the scale, and set the offset of each half. */
TARGET static float quantize_wide(const float *x, int64_t k, int8_t *high, int8_t *low,
                                  int32_t *offset_high, int32_t *offset_low) {
    __m512 largest = _mm512_setzero_ps();
    for (int64_t i = 0; i < k; i += 16)
        largest = _mm512_max_ps(largest, _mm512_abs_ps(_mm512_loadu_ps(x + i)));
    float scale = _mm512_reduce_max_ps(largest) / 32639.0f;
    __m512 inverse = _mm512_set1_ps(scale > 0 ? 1.0f / scale : 0.0f);
    __m512i sum_high = _mm512_setzero_si512(), sum_low = _mm512_setzero_si512();
    for (int64_t i = 0; i < k; i += 16) {
        __m512i r = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i), inverse));
        __m512i top = _mm512_srai_epi32(_mm512_add_epi32(r, _mm512_set1_epi32(128)), 8);
        __m512i remainder = _mm512_sub_epi32(r, _mm512_slli_epi32(top, 8));
        sum_high = _mm512_add_epi32(sum_high, top);
        sum_low = _mm512_add_epi32(sum_low, remainder);
        _mm_storeu_si128((__m128i *)(high + i), _mm512_cvtsepi32_epi8(top));
        _mm_storeu_si128((__m128i *)(low + i), _mm512_cvtsepi32_epi8(remainder));
    }
    *offset_high = 128 * _mm512_reduce_add_epi32(sum_high);
    *offset_low = 128 * _mm512_reduce_add_epi32(sum_low);
    return scale;
}

/* Integer sums of one tile of columns for 1 to 6 rows. Each sum is a separate variable, because
 * compilers would store an array of sums in memory, which would halve the speed. */
#define ROW_ZERO(r) __m512i s##r##0 = zero, s##r##1 = zero, s##r##2 = zero, s##r##3 = zero;
#define ROW_ADD(r)                                      \
    {                                                   \
        int32_t four;                                   \
        memcpy(&four, a + r * k + i, 4);                \
        __m512i b = _mm512_set1_epi32(four);            \
        s##r##0 = _mm512_dpbusd_epi32(s##r##0, w0, b);  \
        s##r##1 = _mm512_dpbusd_epi32(s##r##1, w1, b);  \
        s##r##2 = _mm512_dpbusd_epi32(s##r##2, w2, b);  \
        s##r##3 = _mm512_dpbusd_epi32(s##r##3, w3, b);  \
    }
#define ROW_STORE(r) \
    acc[r][0] = s##r##0, acc[r][1] = s##r##1, acc[r][2] = s##r##2, acc[r][3] = s##r##3;
#define ROWS_1(m) m(0)
#define ROWS_2(m) ROWS_1(m) m(1)
#define ROWS_3(m) ROWS_2(m) m(2)
#define ROWS_4(m) ROWS_3(m) m(3)
#define ROWS_5(m) ROWS_4(m) m(4)
#define ROWS_6(m) ROWS_5(m) m(5)
#define DEFINE_SUMS(rows)                                                                      \
    TARGET static void sums_##rows(const int8_t *a, int64_t k, const uint8_t *tile,            \
                                   __m512i acc[ROWS][4]) {                                     \
        const __m512i zero = _mm512_setzero_si512();                                           \
        ROWS_##rows(ROW_ZERO)                                                                  \
        for (int64_t i = 0; i < k; i += 4, tile += 256) {                                      \
            __m512i w0 = _mm512_loadu_si512(tile), w1 = _mm512_loadu_si512(tile + 64);         \
            __m512i w2 = _mm512_loadu_si512(tile + 128), w3 = _mm512_loadu_si512(tile + 192);  \
            ROWS_##rows(ROW_ADD)                                                               \
        }                                                                                      \
        ROWS_##rows(ROW_STORE)                                                                 \
    }
DEFINE_SUMS(1)
DEFINE_SUMS(2)
DEFINE_SUMS(3)
DEFINE_SUMS(4)
DEFINE_SUMS(5)
DEFINE_SUMS(6)

TARGET static void sums(int rows, const int8_t *a, int64_t k, const uint8_t *tile,
                        __m512i acc[ROWS][4]) {
    switch (rows) {
    case 1: sums_1(a, k, tile, acc); break;
    case 2: sums_2(a, k, tile, acc); break;
    case 3: sums_3(a, k, tile, acc); break;
    case 4: sums_4(a, k, tile, acc); break;
    case 5: sums_5(a, k, tile, acc); break;
    default: sums_6(a, k, tile, acc); break;
    }
}

INLINE __m512 dequantize(__m512i sum, int32_t offset, float scale, const float *scales) {
    __m512 exact = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, _mm512_set1_epi32(offset)));
    return _mm512_mul_ps(_mm512_mul_ps(exact, _mm512_loadu_ps(scales)), _mm512_set1_ps(scale));
}

/* exp(-x), with |x| limited to 30, so that the product of two results is finite. */
INLINE __m512 exp_minus(__m512 x) {
    x = _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-30.0f)), _mm512_set1_ps(30.0f));
    __m512 y = _mm512_mul_ps(x, _mm512_set1_ps(-1.44269504088896341f));
    __m512 n = _mm512_roundscale_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 f = _mm512_sub_ps(y, n);
    __m512 p = _mm512_set1_ps(1.5403530393381606e-4f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.3333558146428443e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.6181291076284772e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.5504108664821580e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.4022650695910071e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9314718055994531e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* sigmoid(a) * tanh(b) with one division. */
INLINE __m512 sigmoid_tanh(__m512 a, __m512 b) {
    const __m512 one = _mm512_set1_ps(1.0f);
    __m512 ea = exp_minus(a), eb = exp_minus(_mm512_add_ps(b, b));
    return _mm512_div_ps(_mm512_sub_ps(one, eb),
                         _mm512_mul_ps(_mm512_add_ps(one, ea), _mm512_add_ps(one, eb)));
}

INLINE __m512 clip(__m512 x, float limit) {
    return _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-limit)), _mm512_set1_ps(limit));
}

/* Quantized rows of activations. */
typedef struct {
    int8_t *q;        /* (rows, k) */
    float *scale;     /* (rows,) */
    int32_t *offset;  /* (rows,) */
} Quantized;

/* Compute one tile of W_x x + b. `gates` has 4H values per row, in tile order. */
TARGET static void input_rows(int rows, const Layer *l, Quantized x, int64_t first, int64_t tile,
                              float *gates) {
    __m512i acc[ROWS][4];
    sums(rows, x.q + first * l->d, l->d, l->wx + tile * 64 * l->d, acc);
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < 4; v++) {
            int64_t column = tile * 64 + v * 16;
            __m512 g = dequantize(acc[r][v], x.offset[first + r], x.scale[first + r], l->sx + column);
            _mm512_storeu_ps(gates + (first + r) * 4 * l->h + column,
                             _mm512_add_ps(g, _mm512_loadu_ps(l->bias + column)));
        }
}

/* Update 16 cells of each row: c <- clip(sigmoid(f) c + sigmoid(i) tanh(j)), and
 * h = sigmoid(o) tanh(c). f includes the constant of the forget gate. */
TARGET static void cell_rows(int rows, const Layer *l, Quantized r_in, int64_t first, int64_t tile,
                             const float *gates, float *const *cell, float *h) {
    __m512i acc[ROWS][4];
    sums(rows, r_in.q + first * l->d, l->d, l->wr + tile * 64 * l->d, acc);
    for (int r = 0; r < rows; r++) {
        __m512 g[4];
        for (int v = 0; v < 4; v++) {
            int64_t column = tile * 64 + v * 16;
            const float *gx = gates + (first + r) * 4 * l->h + column;
            g[v] = _mm512_add_ps(
                dequantize(acc[r][v], r_in.offset[first + r], r_in.scale[first + r], l->sr + column),
                _mm512_loadu_ps(gx));
        }
        float *c_ptr = cell[first + r] + tile * 16;
        __m512 forget = _mm512_add_ps(_mm512_set1_ps(1.0f), exp_minus(g[1]));
        __m512 c = _mm512_add_ps(_mm512_div_ps(_mm512_loadu_ps(c_ptr), forget),
                                 sigmoid_tanh(g[0], g[3]));
        c = clip(c, l->cell_clip);
        _mm512_storeu_ps(c_ptr, c);
        _mm512_storeu_ps(h + (first + r) * l->h + tile * 16, sigmoid_tanh(g[2], c));
    }
}

/* r = clip(W_p h), with h quantized as a high and a low half. */
TARGET static void projected_rows(int rows, const Layer *l, Quantized high, Quantized low,
                                  int64_t first, int64_t tile, float *r_out) {
    __m512i acc[ROWS][4], acc_low[ROWS][4];
    const uint8_t *weights = l->wp + tile * 64 * l->h;
    sums(rows, high.q + first * l->h, l->h, weights, acc);
    sums(rows, low.q + first * l->h, l->h, weights, acc_low);
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < 4; v++) {
            int64_t column = tile * 64 + v * 16;
            float scale = high.scale[first + r];
            __m512 p = dequantize(acc[r][v], high.offset[first + r], 256.0f * scale, l->sp + column);
            p = _mm512_add_ps(
                p, dequantize(acc_low[r][v], low.offset[first + r], scale, l->sp + column));
            if (column < l->d)
                _mm512_storeu_ps(r_out + (first + r) * l->d + column, clip(p, l->proj_clip));
        }
}

static int rows_in_tile(int64_t first, int64_t n) {
    return n - first < ROWS ? (int)(n - first) : ROWS;
}

TARGET static void input_product(const Layer *l, Quantized x, int64_t n, float *gates) {
    for (int64_t tile = 0; tile < l->h / 16; tile++)
        for (int64_t first = 0; first < n; first += ROWS)
            input_rows(rows_in_tile(first, n), l, x, first, tile, gates);
}

TARGET static void cell_step(const Layer *l, Quantized r, int64_t n, const float *gates,
                             float *const *cell, float *h) {
    for (int64_t tile = 0; tile < l->h / 16; tile++)
        for (int64_t first = 0; first < n; first += ROWS)
            cell_rows(rows_in_tile(first, n), l, r, first, tile, gates, cell, h);
}

TARGET static void projection(const Layer *l, Quantized high, Quantized low, int64_t n,
                              float *r_out) {
    for (int64_t tile = 0; tile < (l->d + 63) / 64; tile++)
        for (int64_t first = 0; first < n; first += ROWS)
            projected_rows(rows_in_tile(first, n), l, high, low, first, tile, r_out);
}

static int64_t shard_rows(int64_t active, int64_t shard, int64_t shards) {
    return active > shard ? (active - shard + shards - 1) / shards : 0;
}

static void *allocate(char **free_memory, int64_t bytes) {
    void *start = *free_memory;
    *free_memory += (bytes + 63) / 64 * 64;
    return start;
}

static Quantized allocate_quantized(char **free_memory, int64_t rows, int64_t k) {
    Quantized quantized;
    quantized.q = allocate(free_memory, rows * k);
    quantized.scale = allocate(free_memory, rows * 4);
    quantized.offset = allocate(free_memory, rows * 4);
    return quantized;
}

/* Process a packed batch (see packing.py) with one layer of one direction.
 *
 * Several threads can process the sentences of a batch. Each call processes only the rows with
 * row % shards == shard. The input of token t of the packed order is at in + position[t] * stride,
 * and its output at out + position[t] * stride. The states `cell` (rows, H) and `hidden` (rows, D)
 * are updated in place. Return 0, or 1 if memory allocation fails.
 */
TARGET int elmo_lstm_layer(const Layer *l, const float *in, float *out, int64_t stride,
                           const int64_t *position, const int64_t *active, int64_t steps,
                           int64_t shard, int64_t shards, float *cell, float *hidden, int skip) {
    int64_t batch = steps ? shard_rows(active[0], shard, shards) : 0;
    if (batch == 0) return 0;
    int64_t total = 0;
    for (int64_t s = 0; s < steps; s++) total += shard_rows(active[s], shard, shards);
    int64_t chunk_tokens = total < CHUNK_TOKENS ? total : CHUNK_TOKENS;
    if (chunk_tokens < batch) chunk_tokens = batch;
    int64_t bytes = chunk_tokens * (l->d + 8 + 16 * l->h + 8) +
                    batch * (l->d + 8 + 2 * (l->h + 8) + 4 * l->h + 4 * l->d + 16) + 64 * 32;
    char *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) return 1;
    char *free_memory = memory;
    Quantized x = allocate_quantized(&free_memory, chunk_tokens, l->d);
    Quantized r = allocate_quantized(&free_memory, batch, l->d);
    Quantized high = allocate_quantized(&free_memory, batch, l->h);
    Quantized low = allocate_quantized(&free_memory, batch, l->h);
    float *gates = allocate(&free_memory, chunk_tokens * 4 * l->h * 4);
    float *h_float = allocate(&free_memory, batch * l->h * 4);
    float *r_float = allocate(&free_memory, batch * l->d * 4);
    int64_t *token = allocate(&free_memory, chunk_tokens * 8);
    float **cell_row = allocate(&free_memory, batch * sizeof(float *));

    for (int64_t i = 0; i < batch; i++) {
        int64_t row = shard + i * shards;
        cell_row[i] = cell + row * l->h;
        r.scale[i] = quantize(hidden + row * l->d, l->d, r.q + i * l->d, r.offset + i);
    }
    int64_t start = 0; /* the first packed token of the step */
    for (int64_t s = 0; s < steps;) {
        int64_t last = s, n_tokens = 0, position_of_step = start;
        for (; last < steps; last++) {
            int64_t n = shard_rows(active[last], shard, shards);
            if (n == 0 || n_tokens + n > chunk_tokens) break;
            for (int64_t i = 0; i < n; i++) {
                token[n_tokens] = position[position_of_step + shard + i * shards];
                x.scale[n_tokens] = quantize(in + token[n_tokens] * stride, l->d,
                                             x.q + n_tokens * l->d, x.offset + n_tokens);
                n_tokens++;
            }
            position_of_step += active[last];
        }
        if (n_tokens == 0) break; /* no sentence of this shard has any tokens left */
        input_product(l, x, n_tokens, gates);
        int64_t row0 = 0;
        for (; s < last; start += active[s], s++) {
            int64_t n = shard_rows(active[s], shard, shards);
            cell_step(l, r, n, gates + row0 * 4 * l->h, cell_row, h_float);
            const float *result = h_float;
            if (l->wp) {
                for (int64_t i = 0; i < n; i++)
                    high.scale[i] =
                        quantize_wide(h_float + i * l->h, l->h, high.q + i * l->h,
                                      low.q + i * l->h, high.offset + i, low.offset + i);
                projection(l, high, low, n, r_float);
                result = r_float;
            }
            for (int64_t i = 0; i < n; i++) {
                const float *source = result + i * l->d;
                const float *x_ptr = in + token[row0 + i] * stride;
                float *target = out + token[row0 + i] * stride;
                memcpy(hidden + (shard + i * shards) * l->d, source, l->d * 4);
                if (skip)
                    for (int64_t k = 0; k < l->d; k++) target[k] = source[k] + x_ptr[k];
                else
                    memcpy(target, source, l->d * 4);
                r.scale[i] = quantize(source, l->d, r.q + i * l->d, r.offset + i);
            }
            row0 += n;
        }
    }
    free(memory);
    return 0;
}

/* Add the exponentials of the logits of one tile of words to the sums of 1 to 6 rows. The sum of a
 * row is relative to the largest logit so far. */
TARGET static void add_tile(int rows, const uint8_t *w, const float *scales, const float *bias,
                            int64_t tile, int64_t k, Quantized h, int64_t first, float *largest,
                            float *sum) {
    __m512i acc[ROWS][4];
    sums(rows, h.q + first * k, k, w + tile * 64 * k, acc);
    for (int r = 0; r < rows; r++) {
        __m512 g[4], top = _mm512_set1_ps(largest[first + r]);
        for (int v = 0; v < 4; v++) {
            int64_t column = tile * 64 + v * 16;
            g[v] = _mm512_add_ps(
                dequantize(acc[r][v], h.offset[first + r], h.scale[first + r], scales + column),
                _mm512_loadu_ps(bias + column));
            top = _mm512_max_ps(top, g[v]);
        }
        float new_largest = _mm512_reduce_max_ps(top);
        __m512 maximum = _mm512_set1_ps(new_largest), total = _mm512_setzero_ps();
        for (int v = 0; v < 4; v++)
            total = _mm512_add_ps(total, exp_minus(_mm512_sub_ps(maximum, g[v])));
        if (new_largest > largest[first + r]) {
            sum[first + r] *= expf(largest[first + r] - new_largest);
            largest[first + r] = new_largest;
        }
        sum[first + r] += _mm512_reduce_add_ps(total);
    }
}

/* out[i] = log sum_w exp(W_w . h_i + b_w) over n words. n must be a multiple of 64. h has `rows` rows
 * of k values, and k must be a multiple of 16. Return 0, or 1 if memory allocation fails. */
TARGET int elmo_log_sum_exp(const uint8_t *w, const float *scales, const float *bias, int64_t n,
                            int64_t k, const float *h, int64_t rows, float *out) {
    int64_t bytes = rows * (k + 16) + 64 * 8;
    char *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) return 1;
    char *free_memory = memory;
    Quantized q = allocate_quantized(&free_memory, rows, k);
    float *largest = allocate(&free_memory, rows * 4);
    for (int64_t i = 0; i < rows; i++) {
        q.scale[i] = quantize(h + i * k, k, q.q + i * k, q.offset + i);
        largest[i] = -1e30f;
        out[i] = 0;
    }
    for (int64_t tile = 0; tile < n / 64; tile++)
        for (int64_t first = 0; first < rows; first += ROWS)
            add_tile(rows_in_tile(first, rows), w, scales, bias, tile, k, q, first, largest, out);
    for (int64_t i = 0; i < rows; i++) out[i] = largest[i] + logf(out[i]);
    free(memory);
    return 0;
}

#else
int elmo_supported(void) { return 0; }
int elmo_log_sum_exp(const uint8_t *w, const float *scales, const float *bias, int64_t n,
                     int64_t k, const float *h, int64_t rows, float *out) {
    return 1;
}
void elmo_pack(const int8_t *q, int64_t n, int64_t k, uint8_t *packed) {}
int elmo_lstm_layer(const Layer *l, const float *in, float *out, int64_t stride,
                    const int64_t *position, const int64_t *active, int64_t steps, int64_t shard,
                    int64_t shards, float *cell, float *hidden, int skip) {
    return 1;
}
#endif
