#include "memory/open_chunk.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace mneme::memory {
namespace {

// Arrays start at 64-byte lines.
size_t Rounded(size_t floats) { return (floats + 15) / 16 * 16; }

// Hands out consecutive parts of one allocation; with no storage it only counts.
class Parts {
 public:
  explicit Parts(float* storage) : storage_(storage) {}

  float* Take(size_t floats) {
    float* part = storage_ == nullptr ? nullptr : storage_ + used_;
    used_ += Rounded(floats);
    return part;
  }

  size_t used() const { return used_; }

 private:
  float* storage_;
  size_t used_ = 0;
};

struct Arrays {
  std::vector<kernels::OpenRows> rows;
  std::vector<kernels::OpenKv> kv;
  float* last_hidden = nullptr;
  size_t floats = 0;
};

Arrays LayOut(const MemoryLayout& layout, float* storage) {
  const kernels::LinearShape& shape = layout.linear;
  const auto tokens = static_cast<size_t>(layout.chunk_tokens());
  Parts parts(storage);
  Arrays arrays;
  arrays.rows.resize(layout.linear_layers.size());
  for (kernels::OpenRows& rows : arrays.rows) {
    rows.k = parts.Take(tokens * static_cast<size_t>(shape.key_width()));
    rows.u = parts.Take(tokens * static_cast<size_t>(shape.value_heads) *
                        static_cast<size_t>(shape.key_dim + shape.value_dim));
    rows.c = parts.Take(tokens * static_cast<size_t>(shape.value_heads));
    rows.conv = parts.Take(2 * layout.conv_tail_floats());
  }
  for (const int layer : layout.routed_layers) {
    arrays.rows[static_cast<size_t>(layer)].route_key =
        parts.Take(tokens * static_cast<size_t>(shape.key_width()));
  }
  arrays.kv.resize(layout.attention_layers.size());
  const size_t kv_floats = static_cast<size_t>(layout.attention.kv_heads) *
                           static_cast<size_t>(layout.attention.chunk_tokens) *
                           static_cast<size_t>(layout.attention.head_dim);
  for (kernels::OpenKv& kv : arrays.kv) {
    kv.key = parts.Take(kv_floats);
    kv.value = parts.Take(kv_floats);
  }
  arrays.last_hidden = parts.Take(static_cast<size_t>(layout.hidden));
  arrays.floats = parts.used();
  return arrays;
}

// Copies the first `tokens` rows of every head of [heads, T, width].
void CopyRows(float* to, const float* from, int heads, int chunk_tokens, int width, int tokens) {
  const auto stride = static_cast<size_t>(chunk_tokens) * static_cast<size_t>(width);
  for (int head = 0; head < heads; ++head) {
    std::copy_n(from + static_cast<size_t>(head) * stride,
                static_cast<size_t>(tokens) * static_cast<size_t>(width),
                to + static_cast<size_t>(head) * stride);
  }
}

// Gives the whole pages back in which only rows from `tokens` on of [heads, T, width] lie.
void ReleaseRowsOf(float* rows, int heads, int chunk_tokens, int width, int tokens) {
  static const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto stride = static_cast<size_t>(chunk_tokens) * static_cast<size_t>(width);
  for (int head = 0; head < heads; ++head) {
    float* const first = rows + static_cast<size_t>(head) * stride;
    const auto unused = reinterpret_cast<uintptr_t>(first + static_cast<size_t>(tokens) *
                                                                static_cast<size_t>(width));
    const uintptr_t from = (unused + page_bytes - 1) / page_bytes * page_bytes;
    const uintptr_t to = reinterpret_cast<uintptr_t>(first + stride) / page_bytes * page_bytes;
    if (from < to) madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
  }
}

}  // namespace

OpenChunk::OpenChunk(const MemoryLayout& layout) : layout_(&layout) {
  const size_t bytes = Bytes(layout);
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  MNEME_CHECK(mapped != MAP_FAILED, "the system refuses {} bytes for an open chunk", bytes);
  storage_ = std::unique_ptr<float[], Unmap>(static_cast<float*>(mapped), Unmap{.bytes = bytes});
  Arrays arrays = LayOut(layout, storage_.get());
  rows_ = std::move(arrays.rows);
  kv_ = std::move(arrays.kv);
  last_hidden_ = arrays.last_hidden;
  Reset();
}

void OpenChunk::Unmap::operator()(float* floats) const { munmap(floats, bytes); }

size_t OpenChunk::Bytes(const MemoryLayout& layout) {
  return LayOut(layout, nullptr).floats * sizeof(float);
}

size_t OpenChunk::RowBytes(const MemoryLayout& layout, int rows) {
  const kernels::LinearShape& shape = layout.linear;
  const int linear = shape.key_width() + shape.value_heads * (shape.key_dim + shape.value_dim + 1);
  const int attention = 2 * layout.attention.kv_heads * layout.attention.head_dim;
  const size_t floats = layout.linear_layers.size() * static_cast<size_t>(linear) +
                        layout.routed_layers.size() * static_cast<size_t>(shape.key_width()) +
                        layout.attention_layers.size() * static_cast<size_t>(attention);
  return floats * sizeof(float) * static_cast<size_t>(rows);
}

void OpenChunk::Reset() {
  conv_read_ = 0;
  for (size_t layer = 0; layer < rows_.size(); ++layer)
    std::fill_n(conv_tail(static_cast<int>(layer)), layout_->conv_tail_floats(), 0.0f);
  std::fill_n(last_hidden_, layout_->hidden, 0.0f);
}

void OpenChunk::CopyFrom(const OpenChunk& other, int tokens) {
  const kernels::LinearShape& shape = layout_->linear;
  const int chunk_tokens = layout_->chunk_tokens();
  conv_read_ = 0;
  for (size_t layer = 0; layer < rows_.size(); ++layer) {
    const kernels::OpenRows& to = rows_[layer];
    const kernels::OpenRows& from = other.rows_[layer];
    CopyRows(to.k, from.k, shape.key_heads, chunk_tokens, shape.key_dim, tokens);
    CopyRows(to.u, from.u, shape.value_heads, chunk_tokens, shape.key_dim + shape.value_dim,
             tokens);
    CopyRows(to.c, from.c, shape.value_heads, chunk_tokens, 1, tokens);
    if (to.route_key != nullptr)
      CopyRows(to.route_key, from.route_key, shape.key_heads, chunk_tokens, shape.key_dim, tokens);
    std::copy_n(other.conv_tail(static_cast<int>(layer)), layout_->conv_tail_floats(),
                conv_tail(static_cast<int>(layer)));
  }
  for (size_t layer = 0; layer < kv_.size(); ++layer) {
    CopyRows(kv_[layer].key, other.kv_[layer].key, layout_->attention.kv_heads, chunk_tokens,
             layout_->attention.head_dim, tokens);
    CopyRows(kv_[layer].value, other.kv_[layer].value, layout_->attention.kv_heads, chunk_tokens,
             layout_->attention.head_dim, tokens);
  }
  std::copy_n(other.last_hidden_, layout_->hidden, last_hidden_);
}

void OpenChunk::ReleaseRows(int tokens) {
  const kernels::LinearShape& shape = layout_->linear;
  const int chunk_tokens = layout_->chunk_tokens();
  for (const kernels::OpenRows& rows : rows_) {
    ReleaseRowsOf(rows.k, shape.key_heads, chunk_tokens, shape.key_dim, tokens);
    ReleaseRowsOf(rows.u, shape.value_heads, chunk_tokens, shape.key_dim + shape.value_dim, tokens);
    if (rows.route_key != nullptr)
      ReleaseRowsOf(rows.route_key, shape.key_heads, chunk_tokens, shape.key_dim, tokens);
  }
  const kernels::AttentionShape& attention = layout_->attention;
  for (const kernels::OpenKv& kv : kv_) {
    ReleaseRowsOf(kv.key, attention.kv_heads, chunk_tokens, attention.head_dim, tokens);
    ReleaseRowsOf(kv.value, attention.kv_heads, chunk_tokens, attention.head_dim, tokens);
  }
}

float* OpenChunk::conv_tail(int linear_layer) {
  return rows_[static_cast<size_t>(linear_layer)].conv +
         static_cast<size_t>(conv_read_) * layout_->conv_tail_floats();
}

const float* OpenChunk::conv_tail(int linear_layer) const {
  return rows_[static_cast<size_t>(linear_layer)].conv +
         static_cast<size_t>(conv_read_) * layout_->conv_tail_floats();
}

}  // namespace mneme::memory
