#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/row_loops.h"
#include "kernels/gdn.h"
#include "kernels/gdn_chunk.h"
#include "kernels/gdn_step.h"
#include "kernels/page_read.h"

namespace mneme::kernels::cpu {
namespace {

// A key head's part of one row or one piece while it is worked on. In the prefill form there are
// kPieceTokens rows, in the decode form one.
struct HeadRead {
  const GdnReadArgs& args;
  int key_head;
  int32_t first_row;   // in the activations
  int32_t rows;        // used
  int32_t row_places;  // rows that carry and output have room for
  float* carry;        // [r, row_places, K]
  float* output;       // [r, row_places, V]
  float* square;       // [row_places, M]  |w r B|^2 over the heads
  float* scratch;

  int heads() const { return args.shape.heads_per_group(); }
  float* carry_of(int head) const {
    return carry + static_cast<ptrdiff_t>(head) * row_places * args.shape.key_dim;
  }
  float* output_of(int head) const {
    return output + static_cast<ptrdiff_t>(head) * row_places * args.shape.value_dim;
  }
  // Where row i's list begins.
  int64_t ListAt(int32_t i) const {
    return (int64_t{first_row + i} * args.shape.key_heads + key_head) * args.shape.pages_max;
  }
  int32_t ListCount(int32_t i) const {
    return args.list.count[int64_t{first_row + i} * args.shape.key_heads + key_head];
  }
};

HeadRead Divide(const GdnReadArgs& args, int key_head, int32_t first_row, int32_t rows,
                int32_t row_places, float* scratch) {
  const LinearShape& shape = args.shape;
  const ptrdiff_t places = static_cast<ptrdiff_t>(shape.heads_per_group()) * row_places;
  HeadRead read{args, key_head, first_row, rows, row_places, nullptr, nullptr, nullptr, nullptr};
  read.carry = scratch;
  read.output = read.carry + places * shape.key_dim;
  read.square = read.output + places * shape.value_dim;
  read.scratch = read.square + static_cast<ptrdiff_t>(row_places) * shape.pages_max;
  return read;
}

// Whether the rows' carry is needed; gdn.h says what follows when it is not.
bool ReadsHistory(const GdnReadArgs& args, const SessionView& session) {
  return args.list.chunk != nullptr ||
         (session.folded != nullptr && session.folded[args.linear_layer] != nullptr);
}

// Reads one chunk for the rows at `rows` whose list entry for it is number `entry`.
Status ReadGroup(const HeadRead& read, int count, const int32_t* rows, const int32_t* entry) {
  const GdnReadArgs& args = read.args;
  const int K = args.shape.key_dim, V = args.shape.value_dim;
  const std::byte* group = args.list.group[read.ListAt(rows[0]) + entry[0]];
  if (group == nullptr) return {};
  Result<PageGroupHeader> header = ReadPageGroupHeader(group, args.shape);
  if (!header) return Fail(std::move(header).error());
  float gate[kPieceTokens];
  float square[kPieceTokens] = {};
  for (int i = 0; i < count; ++i) gate[i] = args.list.gate[read.ListAt(rows[i]) + entry[i]];
  for (int head = 0; head < read.heads(); ++head) {
    PageReadArgs page;
    page.page = PageOf(group, *header, head);
    page.key_dim = K;
    page.value_dim = V;
    page.count = count;
    page.row = rows;
    page.gate = gate;
    page.carry = read.carry_of(head);
    page.output = read.output_of(head);
    page.square = square;
    page.scratch = read.scratch;
    // Few rows are read as one is: a page is not worth converting for them.
    constexpr int kTogether = 4;
    count < kTogether ? ReadPage(page) : ReadPageTogether(page);
  }
  for (int i = 0; i < count; ++i)
    read.square[static_cast<ptrdiff_t>(rows[i]) * args.shape.pages_max + entry[i]] = square[i];
  return {};
}

// Walks the union of the rows' lists from the newest chunk to the oldest.
Status ReadLists(const HeadRead& read) {
  const RouteList& list = read.args.list;
  int32_t next[kPieceTokens] = {};  // entry of each row's list that comes next
  for (;;) {
    int32_t newest = -1;
    for (int32_t i = 0; i < read.rows; ++i) {
      if (next[i] < read.ListCount(i))
        newest = std::max(newest, list.chunk[read.ListAt(i) + next[i]]);
    }
    if (newest < 0) return {};
    int32_t rows[kPieceTokens];
    int32_t entry[kPieceTokens];
    int count = 0;
    for (int32_t i = 0; i < read.rows; ++i) {
      if (next[i] >= read.ListCount(i) || list.chunk[read.ListAt(i) + next[i]] != newest) continue;
      rows[count] = i;
      entry[count++] = next[i]++;
    }
    MNEME_TRY(ReadGroup(read, count, rows, entry));
  }
}

// y += r S for the rows of one head.
void ReadFolded(const HeadRead& read, const float* state, int head) {
  const int K = read.args.shape.key_dim, V = read.args.shape.value_dim;
  const float* carry = read.carry_of(head);
  float* output = read.output_of(head);
  if (read.row_places == 1) {
    AddRows(state, V, K, V, carry, output);
    return;
  }
  float* product = read.scratch;  // [kPieceTokens, V]
  Multiply(read.rows, V, K, {carry, K}, {state, V}, product, V);
  for (int i = 0; i < read.rows * V; ++i) output[i] += product[i];
}

// out <- RMSNorm(y) SiLU(z), and the shares of the list's entries.
void FinishRow(const HeadRead& read, int32_t i) {
  const GdnReadArgs& args = read.args;
  const LinearShape& shape = args.shape;
  const int V = shape.value_dim;
  const int64_t row = read.first_row + i;
  float all = 0.0f;
  for (int head = 0; head < read.heads(); ++head) {
    const float* y = read.output_of(head) + static_cast<ptrdiff_t>(i) * V;
    const ptrdiff_t column = (static_cast<ptrdiff_t>(read.key_head) * read.heads() + head) * V;
    float square = 0.0f;
    DotRows(y, V, 1, V, y, &square);
    all += square;
    const float scale = 1.0f / std::sqrt(square / static_cast<float>(V) + args.epsilon);
    GateRow(y, scale, args.norm_weight,
            args.projected + row * shape.projected_width() + shape.conv_width() + column, V,
            args.out + row * shape.value_width() + column);
  }
  if (args.share == nullptr || args.list.chunk == nullptr) return;
  float* share = args.share + read.ListAt(i);
  const float* square = read.square + static_cast<ptrdiff_t>(i) * shape.pages_max;
  for (int m = 0; m < shape.pages_max; ++m)
    share[m] = all > 0.0f ? std::sqrt(square[m] / all) : 0.0f;
}

Status ReadHistoryAndFinish(const HeadRead& read, const SessionView& session) {
  const GdnReadArgs& args = read.args;
  if (args.list.chunk != nullptr) {
    std::fill_n(read.square, static_cast<ptrdiff_t>(read.rows) * args.shape.pages_max, 0.0f);
    MNEME_TRY(ReadLists(read));
  } else if (ReadsHistory(args, session)) {
    const float* state = session.folded[args.linear_layer];
    const ptrdiff_t each = static_cast<ptrdiff_t>(args.shape.key_dim) * args.shape.value_dim;
    for (int head = 0; head < read.heads(); ++head)
      ReadFolded(read, state + (static_cast<ptrdiff_t>(read.key_head) * read.heads() + head) * each,
                 head);
  }
  for (int32_t i = 0; i < read.rows; ++i) FinishRow(read, i);
  return {};
}

// Fills what the step's and the piece's args have in common.
template <typename OpenArgs>
void FillOpenArgs(const GdnReadArgs& args, const SessionView& session, int key_head, int32_t row,
                  OpenArgs& open) {
  const LinearShape& shape = args.shape;
  const int64_t g = key_head, h = g * shape.heads_per_group(), T = shape.chunk_tokens;
  const OpenRows& rows = session.open[args.linear_layer];
  open.key_dim = shape.key_dim;
  open.value_dim = shape.value_dim;
  open.heads = shape.heads_per_group();
  open.chunk_tokens = shape.chunk_tokens;
  open.transition = ReadsHistory(args, session);
  open.q = args.q + int64_t{row} * shape.key_width() + g * shape.key_dim;
  open.k = args.k + int64_t{row} * shape.key_width() + g * shape.key_dim;
  open.v = args.v + int64_t{row} * shape.value_width() + h * shape.value_dim;
  open.write_strength = args.write_strength + int64_t{row} * shape.value_heads + h;
  open.log_decay = args.log_decay + int64_t{row} * shape.value_heads + h;
  open.open_k = rows.k + g * T * shape.key_dim;
  open.open_u = rows.u + h * T * (shape.key_dim + shape.value_dim);
  open.open_c = rows.c + h * T;
}

Status ReadDecodeRow(const GdnReadArgs& args, int32_t row, int key_head, float* scratch) {
  const StepTable& step = *args.step;
  const SessionView& session = step.sessions[step.session[row]];
  const HeadRead read = Divide(args, key_head, row, 1, 1, scratch);
  GdnStepArgs token;
  FillOpenArgs(args, session, key_head, row, token);
  token.at = step.position[row] % args.shape.chunk_tokens;
  token.carry = read.carry;
  token.output = read.output;
  token.scratch = read.scratch;
  GdnStep(token);
  return ReadHistoryAndFinish(read, session);
}

Status ReadPiece(const GdnReadArgs& args, const Piece& piece, int key_head, float* scratch) {
  const SessionView& session = args.step->sessions[0];
  const LinearShape& shape = args.shape;
  const HeadRead read = Divide(args, key_head, piece.row, piece.tokens, kPieceTokens, scratch);
  GdnPieceArgs tokens;
  FillOpenArgs(args, session, key_head, piece.row, tokens);
  tokens.at = piece.position % shape.chunk_tokens;
  tokens.tokens = piece.tokens;
  tokens.key_stride = shape.key_width();
  tokens.value_stride = shape.value_width();
  tokens.head_stride = shape.value_heads;
  tokens.carry = read.carry;
  tokens.output = read.output;
  tokens.scratch = read.scratch;
  GdnPiece(tokens);
  return ReadHistoryAndFinish(read, session);
}

void ClearRows(const GdnReadArgs& args, int64_t first, int64_t last) {
  const LinearShape& shape = args.shape;
  std::fill(args.out + first * shape.value_width(), args.out + last * shape.value_width(), 0.0f);
  if (args.share == nullptr) return;
  const int64_t width = int64_t{shape.key_heads} * shape.pages_max;
  std::fill(args.share + first * width, args.share + last * width, 0.0f);
}

// Lists may not be longer than their room; `gdn_read` trusts them otherwise.
Status CheckLists(const GdnReadArgs& args) {
  if (args.list.chunk == nullptr) return {};
  const int64_t lists = int64_t{args.step->rows} * args.shape.key_heads;
  for (int64_t i = 0; i < lists; ++i) {
    if (args.list.count[i] < 0 || args.list.count[i] > args.shape.pages_max)
      return Fail(ErrorCode::kInvalidArgument, "gdn_read: list {} has {} entries of {}", i,
                  args.list.count[i], args.shape.pages_max);
  }
  return {};
}

}  // namespace

Status GdnRead(const GdnReadArgs& args, Stream& stream) {
  MNEME_TRY(Validate(args));
  if (args.step->rows == 0) return {};
  MNEME_TRY(CheckLists(args));
  CpuStream& cpu = AsCpu(stream);
  const StepTable& step = *args.step;
  const int G = args.shape.key_heads;
  const bool decode = step.form == RowForm::kDecode;
  std::vector<Status> failed(static_cast<size_t>(decode ? int64_t{step.rows} * G : G));
  if (decode) {
    cpu.pool().Run(int64_t{step.rows} * G, [&](int64_t item, int thread) {
      const int32_t row = static_cast<int32_t>(item / G);
      if (step.session[row] < 0) {
        if (item % G == 0) ClearRows(args, row, row + 1);
        return;
      }
      failed[static_cast<size_t>(item)] =
          ReadDecodeRow(args, row, static_cast<int>(item % G), cpu.scratch(thread).data());
    });
  } else {
    // The pieces of a slice follow each other within a key head: each reads the rows before it.
    cpu.pool().Run(G, [&](int64_t item, int thread) {
      for (int32_t i = 0; i < step.piece_count; ++i) {
        Status status =
            ReadPiece(args, step.pieces[i], static_cast<int>(item), cpu.scratch(thread).data());
        if (!status) {
          failed[static_cast<size_t>(item)] = std::move(status);
          return;
        }
      }
    });
    for (int32_t i = 0; i < step.piece_count; ++i)
      ClearRows(args, step.pieces[i].row + step.pieces[i].tokens,
                step.pieces[i].row + kPieceTokens);
  }
  for (Status& status : failed) MNEME_TRY(std::move(status));
  return {};
}

}  // namespace mneme::kernels::cpu
