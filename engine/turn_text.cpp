#include "engine/turn_text.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/answers.h"

namespace mneme::engine {
namespace {

// At most `characters_max` characters, cut between two of them.
std::string Beginning(std::string text, size_t characters_max) {
  size_t characters = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool begins = (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80;
    if (begins && ++characters > characters_max) {
      text.resize(at);
      break;
    }
  }
  return text;
}

}  // namespace

v1::TranscriptTurn TranscriptOf(const v1::TurnRecord& record, const model::Tokenizer& tokenizer) {
  v1::TranscriptTurn turn;
  turn.set_turn(record.number());
  turn.set_wall_us(static_cast<int64_t>(record.wall_us()));
  turn.set_stop_reason(StopName(record.stop_reason()));
  turn.set_truncated(record.truncated());
  const TurnTokens tokens = TokensOf(record);
  size_t begin = 0;
  for (const TurnTokens::Part& run : tokens.parts) {
    v1::TranscriptPart& part = *turn.add_parts();
    part.set_generated(run.generated);
    part.set_text(tokenizer.Decode(std::span(tokens.ids).subspan(begin, run.end - begin)));
    part.set_first_position(record.first_position() + begin);
    part.set_tokens(run.end - begin);
    begin = run.end;
  }
  return turn;
}

Result<std::string> SpanText(Session& session, uint64_t first, uint64_t tokens,
                             const model::Tokenizer& tokenizer) {
  // A token is rarely less than a character, so so many are enough.
  const auto ids = session.Collect(first, std::min<uint64_t>(tokens, kSpanCharactersMax));
  MNEME_TRY(ids);
  return Beginning(tokenizer.Decode(*ids, model::SpecialText::kHide), kSpanCharactersMax);
}

}  // namespace mneme::engine
