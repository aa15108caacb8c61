#include "tests/support/gdn_session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/support/near.h"

namespace mneme::support {

using kernels::kPieceTokens;
using kernels::Piece;
using kernels::RowForm;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
size_t Size(T value) {
  return static_cast<size_t>(value);
}

// Rows of `from` [count, width] put where the step wants them, padding NaN.
std::vector<float> Place(const std::vector<float>& from, int width, int rows,
                         const std::vector<int>& position) {
  std::vector<float> to(Size(rows * width), kNan);
  for (int row = 0; row < rows; ++row) {
    if (position[Size(row)] < 0) continue;
    std::copy_n(from.begin() + position[Size(row)] * width, width, to.begin() + row * width);
  }
  return to;
}

}  // namespace

GdnSession::GdnSession(const GdnTokens& tokens, const GdnSessionOptions& options)
    : tokens_(tokens), options_(options), stream_(options.threads) {
  const kernels::LinearShape& s = tokens_.shape;
  const int T = s.chunk_tokens;
  k_.assign(Size(s.key_heads * T * s.key_dim), kNan);
  u_.assign(Size(s.value_heads * T * (s.key_dim + s.value_dim)), kNan);
  c_.assign(Size(s.value_heads * T), kNan);
  conv_.assign(Size(2 * (kernels::kConvTaps - 1) * s.conv_width()), 0.0f);
  out_.assign(Size(tokens.count * s.value_width()), kNan);
  share_.assign(Size(tokens.count * s.key_heads * s.pages_max), kNan);
  state_.assign(Size(s.value_heads * s.key_dim * s.value_dim), 0.0f);
  for (int d = 0; d < s.value_dim; ++d)
    norm_weight_.push_back(0.5f + static_cast<float>(d % 7) * 0.125f);
}

kernels::OpenRows GdnSession::open() {
  kernels::OpenRows open;
  open.k = k_.data();
  open.u = u_.data();
  open.c = c_.data();
  open.conv = conv_.data();
  return open;
}

Doubles GdnSession::Expected(const GateOf& gate) const {
  return GatedNormOf(ReadsOf(tokens_, gate), norm_weight_, tokens_.z,
                     static_cast<double>(options_.epsilon));
}

void GdnSession::Run(const std::vector<Role>& roles, const GateOf& gate, bool twice) {
  const int T = tokens_.shape.chunk_tokens;
  for (const Role& role : roles) {
    const int end = position_ + role.tokens;
    while (position_ < end) {
      std::vector<Piece> pieces;
      int at = position_;
      if (role.form == RowForm::kDecode) {
        pieces.push_back({.row = 0, .tokens = 1, .position = at++});
      }
      while (role.form == RowForm::kPrefill && at < end &&
             static_cast<int>(pieces.size()) < role.slice_pieces) {
        const int cell_end = (at / kPieceTokens + 1) * kPieceTokens;
        const int n = std::min(cell_end, end) - at;
        pieces.push_back({.row = static_cast<int32_t>(pieces.size()) * kPieceTokens,
                          .tokens = n,
                          .position = at});
        at += n;
        if (at % T == 0) break;
      }
      Step(role.form, pieces, gate, twice);
      position_ = at;
      if (position_ % T == 0) CloseChunk();
    }
  }
}

GdnSession::Lists GdnSession::MakeLists(const std::vector<int>& place, const GateOf& gate) const {
  const kernels::LinearShape& s = tokens_.shape;
  const int rows = static_cast<int>(place.size()), G = s.key_heads, M = s.pages_max;
  Lists lists;
  lists.chunk.assign(Size(rows * G * M), -1);
  lists.count.assign(Size(rows * G), 0);
  lists.gate.assign(lists.chunk.size(), kNan);
  lists.share.assign(lists.chunk.size(), kNan);
  lists.group.assign(lists.chunk.size(), nullptr);
  if (options_.history != History::kList) return lists;
  const int closed = position_ / s.chunk_tokens;
  for (int row = 0; row < rows; ++row) {
    for (int g = 0; g < G && place[Size(row)] >= 0; ++g) {
      int32_t& n = lists.count[Size(row * G + g)];
      for (int j = closed - 1; j >= 0 && n < M; --j) {
        const float w = gate(place[Size(row)], g, j);
        if (!(w > 0.0f)) continue;
        const size_t at = Size((row * G + g) * M + n++);
        lists.chunk[at] = j;
        lists.gate[at] = w;
        lists.group[at] = j == missing_ ? nullptr : groups_[Size(j * G + g)].data();
      }
    }
  }
  return lists;
}

void GdnSession::ReadAgain(const kernels::GdnReadArgs& args, const std::vector<float>& out) {
  const std::vector<float> k = k_, u = u_, c = c_, before = out;
  const Status status = kernels::cpu::GdnRead(args, stream_);
  ASSERT_TRUE(status) << status.error().message();
  ExpectSameBits(k_, k);
  ExpectSameBits(u_, u);
  ExpectSameBits(c_, c);
  ExpectSameBits(out, before);
}

void GdnSession::Step(RowForm form, const std::vector<Piece>& pieces, const GateOf& gate,
                      bool twice) {
  const kernels::LinearShape& s = tokens_.shape;
  const bool decode = form == RowForm::kDecode;
  const int rows = decode ? 1 : static_cast<int>(pieces.size()) * kPieceTokens;
  std::vector<int32_t> position(Size(rows), 0), session(Size(rows), -1);
  std::vector<int> place(Size(rows), -1);
  for (const Piece& piece : pieces) {
    for (int i = 0; i < piece.tokens; ++i) {
      position[Size(piece.row + i)] = piece.position + i;
      place[Size(piece.row + i)] = piece.position + i;
      session[Size(piece.row + i)] = 0;
    }
  }
  const kernels::OpenRows open_rows = open();
  const float* folded = state_.data();
  kernels::SessionView view;
  view.open = &open_rows;
  view.folded = options_.history == History::kFolded ? &folded : nullptr;
  kernels::StepTable step;
  step.form = form;
  step.rows = rows;
  step.position = position.data();
  step.session = session.data();
  step.pieces = decode ? nullptr : pieces.data();
  step.piece_count = decode ? 0 : static_cast<int32_t>(pieces.size());
  step.sessions = &view;
  step.session_count = 1;

  const int M = s.pages_max;
  Lists lists = MakeLists(place, gate);
  const std::vector<float> q = Place(tokens_.q, s.key_width(), rows, place);
  const std::vector<float> k = Place(tokens_.k, s.key_width(), rows, place);
  const std::vector<float> v = Place(tokens_.v, s.value_width(), rows, place);
  const std::vector<float> z = Place(tokens_.z, s.value_width(), rows, place);
  const std::vector<float> beta = Place(tokens_.write_strength, s.value_heads, rows, place);
  const std::vector<float> decay = Place(tokens_.log_decay, s.value_heads, rows, place);
  std::vector<float> projected(Size(rows * s.projected_width()), kNan);
  for (int row = 0; row < rows; ++row)
    std::copy_n(z.begin() + row * s.value_width(), s.value_width(),
                projected.begin() + row * s.projected_width() + s.conv_width());
  std::vector<float> out(Size(rows * s.value_width()), kNan);

  kernels::GdnReadArgs args;
  args.step = &step;
  args.shape = s;
  args.projected = projected.data();
  args.q = q.data();
  args.k = k.data();
  args.v = v.data();
  args.write_strength = beta.data();
  args.log_decay = decay.data();
  if (options_.history == History::kList)
    args.list = {lists.chunk.data(), lists.gate.data(), lists.group.data(), lists.count.data()};
  args.norm_weight = norm_weight_.data();
  args.epsilon = options_.epsilon;
  args.out = out.data();
  args.share = lists.share.data();
  const Status status = kernels::cpu::GdnRead(args, stream_);
  ASSERT_TRUE(status) << status.error().message();
  if (twice) ReadAgain(args, out);
  for (int row = 0; row < rows; ++row) {
    if (place[Size(row)] < 0) continue;
    std::copy_n(out.begin() + row * s.value_width(), s.value_width(),
                out_.begin() + place[Size(row)] * s.value_width());
    std::copy_n(lists.share.begin() + row * s.key_heads * M, s.key_heads * M,
                share_.begin() + place[Size(row)] * s.key_heads * M);
  }
}

void GdnSession::CloseChunk() {
  const kernels::LinearShape& s = tokens_.shape;
  const kernels::OpenRows open_rows = open();
  float* state = state_.data();
  if (options_.history == History::kFolded) {
    kernels::FoldArgs fold;
    fold.shape = s;
    fold.open = {&open_rows, 1};
    fold.state = {&state, 1};
    const Status status = kernels::cpu::Fold(fold, stream_);
    ASSERT_TRUE(status) << status.error().message();
  }
  if (options_.history != History::kNone) {
    const size_t bytes =
        kernels::PageGroupBytes(s.heads_per_group(), s.key_dim, s.value_dim, options_.dtype);
    std::vector<std::byte*> destinations;
    for (int g = 0; g < s.key_heads; ++g) {
      groups_.emplace_back(bytes, std::byte{0xff});
      destinations.push_back(groups_.back().data());
    }
    const int layer = 3;
    kernels::SealArgs seal;
    seal.shape = s;
    seal.dtype = options_.dtype;
    seal.first_position = Size(position_ - s.chunk_tokens);
    seal.open = {&open_rows, 1};
    seal.layer = {&layer, 1};
    seal.groups = destinations;
    const Status status = kernels::cpu::Seal(seal, stream_);
    ASSERT_TRUE(status) << status.error().message();
  }
  // The next chunk must not see these rows.
  std::fill(k_.begin(), k_.end(), kNan);
  std::fill(u_.begin(), u_.end(), kNan);
  std::fill(c_.begin(), c_.end(), kNan);
}

}  // namespace mneme::support
