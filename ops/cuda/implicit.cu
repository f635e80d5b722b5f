// Convolution as products of matrices that are never made: the tile of what windows read is gathered into shared memory
// when its turn comes. Images are channels-last; `first` of a tap may lie outside of the image, where all is zero.
//
// Three products, for each group of channels. Of the result: pixels by out channels, over taps and channels. Of the
// image's gradient: its pixels by channels, over taps and out channels; pixels that lie alike under a stride are together,
// so that each of their taps has a window for all of them, or for none. Of the weight's gradient: out channels by channels
// of a tap, over pixels; these are shared among blocks, whose sums a second kernel adds up in order.
#include "products.cu"

#define NOWHERE (-(1 << 29))  // a row so far outside that no tap leads to the image

// Channels `first` to `first + count` of images.
template <typename T>
struct Image {
  const T* data;
  int height, width, channels, first, count;
};

// How taps lead from points of a tile to those of an image, along one dimension: tap k to `(first + k * step) / divisor`
// behind the point, if that is a whole number.
struct Axis {
  int count, first, step, divisor;
  __device__ bool reads(int k) const { return (first + k * step) % divisor == 0; }
  __device__ int offset(int k) const { return (first + k * step) / divisor; }
};

// A walk through the taps that read something, and the channels of each, some at a time.
struct Walk {
  Axis down, right;
  int channels, i, j, channel;
  __device__ bool is_over() const { return i >= down.count; }
  __device__ int tap() const { return i * right.count + j; }
  __device__ void settle() {
    while (!is_over() && !(down.reads(i) && right.reads(j))) next_tap();
  }
  __device__ void next_tap() {
    if (++j == right.count) j = 0, ++i;
  }
  __device__ void next(int count) {
    channel += count;
    if (channel < channels) return;
    channel = 0;
    next_tap();
    settle();
  }
};

// As many elements as move at once, the first `room` of them, or zeros.
template <typename T>
static __device__ void copy_slot(T* to, const T* from, int room, bool by_vectors) {
  if (by_vectors) {
    copy_vector(to, from, room > 0);
    return;
  }
#pragma unroll
  for (int v = 0; v < VECTOR(T); ++v) copy_element(to + v, from + v, v < room);
}

// What a thread copies of a tile of some lines: slots of a vector each, a line by all threads that it has room for.
template <typename T, int LINES, int LENGTH>
struct Slots {
  static const int ACROSS = LENGTH / VECTOR(T), EACH = (LINES * ACROSS + THREADS - 1) / THREADS, STEP = LENGTH + PAD(T);
  static __device__ int line(int n) { return ((int)threadIdx.x + n * THREADS) / ACROSS; }
  static __device__ int along() { return (int)threadIdx.x % ACROSS * VECTOR(T); }
  static_assert(THREADS % (LENGTH / VECTOR(T)) == 0, "a thread is at one place of all its lines");
};

// Pixels of a tile, by lines of `DEPTH` channels that a tap reads of an image.
template <typename T, int ROWS, int DEPTH>
struct Pixels : Slots<T, ROWS, DEPTH> {
  typedef Slots<T, ROWS, DEPTH> S;
  const T* base[S::EACH];
  int down[S::EACH], right[S::EACH];

  // `pixel` is the first of `images * height * width`; a point is `stride` points of the image from the one before.
  __device__ void find(const Image<T>& image, int pixel, int images, int height, int width, int stride_down,
                       int stride_right) {
#pragma unroll
    for (int n = 0; n < S::EACH; ++n) {
      int at = pixel + S::line(n), across = at % width, rest = at / width;
      base[n] = image.data + (long long)(rest / height) * image.height * image.width * image.channels + image.first;
      down[n] = rest < images * height ? rest % height * stride_down : NOWHERE;
      right[n] = across * stride_right;
    }
  }

  __device__ void load(T* tile, const Image<T>& image, int down_by, int right_by, int channel, bool by_vectors) const {
    int col = channel + S::along();
#pragma unroll
    for (int n = 0; n < S::EACH; ++n) {
      int h = down[n] + down_by, w = right[n] + right_by;
      bool is_there = h >= 0 && h < image.height && w >= 0 && w < image.width;
      const T* from = base[n] + ((long long)h * image.width + w) * image.channels + col;
      if (S::line(n) < ROWS)
        copy_slot(tile + S::line(n) * S::STEP + S::along(), from, is_there ? image.count - col : 0, by_vectors);
    }
  }
};

// Lines of a matrix, `step` elements from each other: those from `line` on, of `lines`, and their elements from `col` on.
template <typename T, int LINES, int LENGTH>
static __device__ void load_lines(T* tile, const T* data, long long step, int line, int lines, int col, int cols,
                                  bool by_vectors) {
  typedef Slots<T, LINES, LENGTH> S;
#pragma unroll
  for (int n = 0; n < S::EACH; ++n) {
    int at = line + S::line(n), from = col + S::along();
    if (S::line(n) < LINES)
      copy_slot(tile + S::line(n) * S::STEP + S::along(), data + at * step + from, at < lines ? cols - from : 0,
                by_vectors);
  }
}

// What all kernels are told: extents, groups and their channels, and the windows of both dimensions.
#define SHAPE                                                                                                 \
  int images, int in_height, int in_width, int out_height, int out_width, int groups, int ins, int outs,      \
      int taps_down, int taps_right, int top, int left, int stride_down, int stride_right, int dilation_down, \
      int dilation_right
#define INTS                                                                                                \
  {images, in_height, in_width, out_height, out_width, groups, ins, outs, taps_down, taps_right, top, left, \
   stride_down, stride_right, dilation_down, dilation_right}
struct Convolution {
  int images, in_height, in_width, out_height, out_width, groups, ins, outs, taps_down, taps_right, top, left;
  int stride_down, stride_right, dilation_down, dilation_right;
};

// Adds up the pixels that a walk reads, times the weights of each tap. These are (out channels, taps, channels);
// IS_TURNED: their out channels are what is summed over. Of the columns of the result, the tile has those from `col` on.
template <typename T, int ROWS, int COLS, int DEPTH, bool IS_TURNED>
static __device__ void multiply_pixels(Product<T, ROWS, COLS, IS_TURNED>& sums, const Pixels<T, ROWS, DEPTH>& pixels,
                                       const Image<T>& image, Walk at, const T* weight, const Convolution& c, int col,
                                       bool by_vectors, bool has_vectors) {
  const int STEP = DEPTH + PAD(T), LINES = IS_TURNED ? DEPTH : COLS, LENGTH = IS_TURNED ? COLS : DEPTH;
  const int WEIGHT_STEP = LENGTH + PAD(T);
  __shared__ __align__(16) T read[2][ROWS * STEP], weights[2][LINES * WEIGHT_STEP];
  long long step = (long long)c.taps_down * c.taps_right * c.ins;
  auto fetch = [&](int turn, const Walk& w) {
    pixels.load(read[turn], image, w.down.offset(w.i), w.right.offset(w.j), w.channel, by_vectors);
    const T* tap = weight + w.tap() * c.ins;
    int line = IS_TURNED ? w.channel : col, along = IS_TURNED ? col : w.channel;
    load_lines<T, LINES, LENGTH>(weights[turn], tap, step, line, c.outs, along, c.ins, has_vectors);
  };
  at.settle();
  if (!at.is_over()) fetch(0, at);
  for (int turn = 0; !at.is_over(); turn ^= 1) {
    Walk next = at;
    next.next(DEPTH);
    await_copies();
    __syncthreads();  // this turn's tiles are there, and nobody reads those of the turn before
    if (!next.is_over()) fetch(turn ^ 1, next);
    sums.template add<DEPTH, false>(read[turn], STEP, weights[turn], WEIGHT_STEP);
    at = next;
  }
}

// Which tile of rows, group and tile of columns a block has; blocks that read the same rows follow each other.
struct Place {
  int row, group, col;
};
static __device__ Place place_of(int cols, int tile_cols, int groups) {
  int across = (cols + tile_cols - 1) / tile_cols, block = (int)blockIdx.x;
  return {block / (across * groups), block / across % groups, block % across * tile_cols};
}

template <typename T, int COLS, int DEPTH>
static __device__ void convolve(const T* x, const T* weight, const T* bias, T* y, const Convolution& c,
                                bool is_rectified, bool by_vectors, bool has_vectors) {
  const int ROWS = 64;
  Place at = place_of(c.outs, COLS, c.groups);
  Image<T> image = {x, c.in_height, c.in_width, c.groups * c.ins, at.group * c.ins, c.ins};
  Pixels<T, ROWS, DEPTH> pixels;
  pixels.find(image, at.row * ROWS, c.images, c.out_height, c.out_width, c.stride_down, c.stride_right);
  Walk walk = {{c.taps_down, c.top, c.dilation_down, 1}, {c.taps_right, c.left, c.dilation_right, 1}, c.ins, 0, 0, 0};
  const T* of_group = weight + (long long)at.group * c.outs * c.taps_down * c.taps_right * c.ins;
  Product<T, ROWS, COLS, false> sums;
  sums.clear();
  multiply_pixels(sums, pixels, image, walk, of_group, c, at.col, by_vectors, has_vectors);
  int count = c.images * c.out_height * c.out_width;
#pragma unroll
  for (int i = 0; i < sums.I; ++i)
#pragma unroll
    for (int j = 0; j < sums.J; ++j) {
      int pixel = at.row * ROWS + sums.row(i), out = at.col + sums.col(j), channel = at.group * c.outs + out;
      if (pixel >= count || out >= c.outs) continue;
      if (bias) sums.sums[i][j] += bias[channel];
      if (is_rectified && sums.sums[i][j] < 0) sums.sums[i][j] = 0;
      y[(long long)pixel * c.groups * c.outs + channel] = sums.sums[i][j];
    }
}

// The rows of a block are pixels of one kind: those that are `kind` points behind a multiple of the stride.
template <typename T, int COLS, int DEPTH>
static __device__ void slopes_of_image(const T* gy, const T* weight, T* gx, const Convolution& c, bool by_vectors,
                                       bool has_vectors) {
  const int ROWS = 64;
  Place at = place_of(c.ins, COLS, c.groups);
  int most_down = (c.in_height + c.stride_down - 1) / c.stride_down;
  int most_right = (c.in_width + c.stride_right - 1) / c.stride_right;
  int tiles = (c.images * most_down * most_right + ROWS - 1) / ROWS, kind = at.row / tiles, tile = at.row % tiles;
  int kind_down = kind / c.stride_right, kind_right = kind % c.stride_right;
  int height = (c.in_height - kind_down + c.stride_down - 1) / c.stride_down;
  int width = (c.in_width - kind_right + c.stride_right - 1) / c.stride_right, count = c.images * height * width;
  if (height <= 0 || width <= 0 || tile * ROWS >= count) return;
  Image<T> image = {gy, c.out_height, c.out_width, c.groups * c.outs, at.group * c.outs, c.outs};
  Pixels<T, ROWS, DEPTH> pixels;
  pixels.find(image, tile * ROWS, c.images, height, width, 1, 1);
  Walk walk = {{c.taps_down, kind_down - c.top, -c.dilation_down, c.stride_down},
               {c.taps_right, kind_right - c.left, -c.dilation_right, c.stride_right},
               c.outs, 0, 0, 0};
  const T* of_group = weight + (long long)at.group * c.outs * c.taps_down * c.taps_right * c.ins;
  Product<T, ROWS, COLS, true> sums;
  sums.clear();
  multiply_pixels(sums, pixels, image, walk, of_group, c, at.col, by_vectors, has_vectors);
#pragma unroll
  for (int i = 0; i < sums.I; ++i) {
    int pixel = tile * ROWS + sums.row(i), rest = pixel / width;
    if (pixel >= count) continue;
    int down = rest % height * c.stride_down + kind_down, right = pixel % width * c.stride_right + kind_right;
    T* to = gx + (((long long)(rest / height) * c.in_height + down) * c.in_width + right) * c.groups * c.ins;
#pragma unroll
    for (int j = 0; j < sums.J; ++j)
      if (at.col + sums.col(j) < c.ins) to[at.group * c.ins + at.col + sums.col(j)] = sums.sums[i][j];
  }
}

// A point of the images that moves on by so many pixels, without a division.
struct Point {
  int image, down, right;
  __device__ void move(const Point& by, int height, int width) {
    right += by.right;
    if (right >= width) right -= width, ++down;
    down += by.down;
    if (down >= height) down -= height, ++image;
    image += by.image;
  }
};
static __device__ Point point_of(int pixel, int height, int width) {
  return {pixel / width / height, pixel / width % height, pixel % width};
}

// A block has some pixels, and writes its sums over them to its part.
template <typename T, int COLS, int DEPTH>
static __device__ void slopes_of_weight(const T* gy, const T* x, typename SumsOf<T>::type* parts, const Convolution& c,
                                        int split, bool by_vectors, bool has_vectors) {
  const int ROWS = 64, OUT_STEP = ROWS + PAD(T), IN_STEP = COLS + PAD(T);
  typedef Slots<T, DEPTH, COLS> S;
  __shared__ __align__(16) T slopes[2][DEPTH * OUT_STEP], read[2][DEPTH * IN_STEP];
  int taps = c.taps_down * c.taps_right, across = (c.ins + COLS - 1) / COLS;
  Place at = place_of(taps * across * COLS, COLS, c.groups);
  int tap = at.col / COLS / across, col = at.col / COLS % across * COLS;
  int tiles = (c.outs + ROWS - 1) / ROWS, row = at.row % tiles * ROWS, part = at.row / tiles;
  int pixels = c.images * c.out_height * c.out_width, begin = part * split;
  int end = begin + split < pixels ? begin + split : pixels;
  int down_by = c.top + tap / c.taps_right * c.dilation_down, right_by = c.left + tap % c.taps_right * c.dilation_right;
  Point points[S::EACH], step = point_of(DEPTH, c.out_height, c.out_width);
#pragma unroll
  for (int n = 0; n < S::EACH; ++n) points[n] = point_of(begin + S::line(n), c.out_height, c.out_width);
  int in_channels = c.groups * c.ins, out_channels = c.groups * c.outs;
  Product<T, ROWS, COLS, true> sums;
  sums.clear();
  auto fetch = [&](int turn, int pixel) {
    load_lines<T, DEPTH, ROWS>(slopes[turn], gy + at.group * c.outs, out_channels, pixel, end, row, c.outs, by_vectors);
#pragma unroll
    for (int n = 0; n < S::EACH; ++n) {
      int h = points[n].down * c.stride_down + down_by, w = points[n].right * c.stride_right + right_by;
      bool is_there = pixel + S::line(n) < end && h >= 0 && h < c.in_height && w >= 0 && w < c.in_width;
      long long place = ((long long)points[n].image * c.in_height + h) * c.in_width + w;
      const T* from = x + place * in_channels + at.group * c.ins + col + S::along();
      if (S::line(n) < DEPTH)
        copy_slot(read[turn] + S::line(n) * IN_STEP + S::along(), from, is_there ? c.ins - col - S::along() : 0,
                  has_vectors);
      points[n].move(step, c.out_height, c.out_width);
    }
  };
  if (begin < end) fetch(0, begin);
  int turn = 0;
  for (int pixel = begin; pixel < end; pixel += DEPTH, turn ^= 1) {
    await_copies();
    __syncthreads();  // this turn's tiles are there, and nobody reads those of the turn before
    if (pixel + DEPTH < end) fetch(turn ^ 1, pixel + DEPTH);
    sums.template add<DEPTH, true>(slopes[turn], OUT_STEP, read[turn], IN_STEP);
  }
  typename SumsOf<T>::type* to = parts + (long long)part * out_channels * taps * c.ins;
#pragma unroll
  for (int i = 0; i < sums.I; ++i)
#pragma unroll
    for (int j = 0; j < sums.J; ++j)
      if (row + sums.row(i) < c.outs && col + sums.col(j) < c.ins)
        to[((long long)(at.group * c.outs + row + sums.row(i)) * taps + tap) * c.ins + col + sums.col(j)] =
            sums.sums[i][j];
}

// -- kernels -----------------------------------------------------------------------------------------------------------

#define CONVOLVE(T, A, name, COLS, DEPTH)                                                \
  extern "C" __global__ void __launch_bounds__(THREADS)                                  \
      convolve_##name(const T* x, const T* weight, const T* bias, T* y, SHAPE,           \
                      long long is_rectified, long long by_vectors, long long vectors) { \
    Convolution c = INTS;                                                                \
    convolve<T, COLS, DEPTH>(x, weight, bias, y, c, is_rectified, by_vectors, vectors);  \
  }
#define SLOPES_OF_IMAGE(T, A, name, COLS, DEPTH)                                                 \
  extern "C" __global__ void __launch_bounds__(THREADS) slopes_of_image_##name(                  \
      const T* gy, const T* weight, T* gx, SHAPE, long long by_vectors, long long has_vectors) { \
    Convolution c = INTS;                                                                        \
    slopes_of_image<T, COLS, DEPTH>(gy, weight, gx, c, by_vectors, has_vectors);                 \
  }
#define SLOPES_OF_WEIGHT(T, A, name, COLS, DEPTH)                                                         \
  extern "C" __global__ void __launch_bounds__(THREADS) slopes_of_weight_##name(                          \
      const T* gy, const T* x, A* parts, SHAPE, int split, long long by_vectors, long long has_vectors) { \
    Convolution c = INTS;                                                                                 \
    slopes_of_weight<T, COLS, DEPTH>(gy, x, parts, c, split, by_vectors, has_vectors);                    \
  }                                                                                                       \
  extern "C" __global__ void add_parts_##name(const A* parts, T* out, int number, long long count) {      \
    long long k = THREAD;                                                                                 \
    if (k >= count) return;                                                                               \
    A sum = 0;                                                                                            \
    for (int n = 0; n < number; ++n) sum += parts[n * count + k];                                         \
    out[k] = sum;                                                                                         \
  }
