#include "cli/answer_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "cli/terminal.h"
#include "cli/turn_text.h"

namespace mneme::cli {
namespace {

constexpr size_t kTellingBytes = 12;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsInWord(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         static_cast<unsigned char>(c) >= 0x80;
}

std::vector<std::string> WordsOf(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : text) {
    if (IsInWord(c)) {
      if (!inside) words.emplace_back();
      words.back().push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
    }
    inside = IsInWord(c);
  }
  return words;
}

bool HasNumber(const std::string& word) {
  return word.size() > 1 && std::any_of(word.begin(), word.end(), IsDigit);
}

// Turns of one session, each asked for once.
class Turns {
 public:
  Turns(client::Client& client, const std::string& session) : client_(client), session_(session) {}

  Result<const v1::TranscriptTurn*> At(uint64_t number) {
    const auto seen = turns_.find(number);
    if (seen != turns_.end()) return &seen->second;
    v1::TranscriptRequest request;
    request.set_session(session_);
    request.set_first_turn(number);
    request.set_turns_max(1);
    auto transcript = client_.Transcript(request);
    MNEME_TRY(transcript);
    if (transcript->turns().empty())
      return Fail(ErrorCode::kNotFound, "session {}: there is no turn {}", session_, number);
    return &(turns_[number] = std::move(*transcript->mutable_turns(0)));
  }

  // The first of the turns up to `last` that reaches beyond `position`.
  Result<uint64_t> FirstBeyond(uint64_t position, uint64_t last) {
    uint64_t low = 1;
    while (low < last) {
      const uint64_t middle = low + (last - low) / 2;
      const auto turn = At(middle);
      MNEME_TRY(turn);
      if (EndOf(**turn) > position) {
        last = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

 private:
  static uint64_t EndOf(const v1::TranscriptTurn& turn) {
    if (turn.parts().empty()) return 0;
    const v1::TranscriptPart& part = *turn.parts().rbegin();
    return part.first_position() + part.tokens();
  }

  client::Client& client_;
  const std::string& session_;
  std::map<uint64_t, v1::TranscriptTurn> turns_;
};

// The bytes of a part that a chunk covers, as well as can be told without the tokens: where the
// chunk's beginning is found, else by its share of the part.
std::pair<size_t, size_t> BytesOf(const v1::Contribution& chunk, const v1::TranscriptPart& part) {
  const std::string& text = part.text();
  const uint64_t end = chunk.first_position() + chunk.tokens();
  if (part.first_position() >= end ||
      part.first_position() + part.tokens() <= chunk.first_position())
    return {0, 0};
  const double token_bytes =
      static_cast<double>(text.size()) / static_cast<double>(std::max<uint64_t>(part.tokens(), 1));
  size_t begin = 0;
  if (part.first_position() < chunk.first_position()) {
    begin = chunk.text().empty() ? text.npos : text.find(chunk.text());
    if (begin == text.npos) {
      begin = static_cast<size_t>(
          static_cast<double>(chunk.first_position() - part.first_position()) * token_bytes);
    }
  }
  const uint64_t tokens = end - std::max(part.first_position(), chunk.first_position());
  const auto bytes = static_cast<size_t>(1.5 * static_cast<double>(tokens) * token_bytes);
  return {begin, std::min(text.size(), begin + bytes)};
}

// Takes into `source` the sentence of `turn` that `chunk` covers and that says more of the answer
// than `shared` bytes.
void LookInto(const v1::TranscriptTurn& turn, const v1::Contribution& chunk,
              const std::string& answer, AnswerSource& source, size_t& shared) {
  for (const Spoken& spoken : SpokenIn(turn)) {
    if (spoken.role == "assistant") continue;
    const auto [begin, end] = BytesOf(chunk, turn.parts(spoken.part));
    for (const std::string_view sentence : SentencesIn(spoken.text)) {
      const size_t at = spoken.offset + static_cast<size_t>(sentence.data() - spoken.text.data());
      if (at >= end || at + sentence.size() <= begin) continue;
      const size_t bytes = SharedBytes(answer, sentence);
      if (bytes <= shared) continue;
      shared = bytes;
      source = {.first_position = chunk.first_position(),
                .tokens = chunk.tokens(),
                .tier = chunk.tier(),
                .sentence = std::string(sentence),
                .found = true};
    }
  }
}

// What the model wrote in `turn`.
std::string AnswerIn(const v1::TranscriptTurn& turn) {
  std::string answer;
  for (const Spoken& spoken : SpokenIn(turn))
    if (turn.parts(spoken.part).generated()) answer += spoken.text + " ";
  return answer;
}

// Chunks in the order in which the tokens name them, and how much was read of each.
struct ReadChunk {
  const v1::Contribution* chunk = nullptr;
  double share = 0;
};

std::vector<ReadChunk> ChunksOf(const v1::Explanation& explanation) {
  std::vector<ReadChunk> chunks;
  for (const v1::TokenExplanation& token : explanation.tokens()) {
    for (const v1::Contribution& part : token.contributions()) {
      const auto found = std::ranges::find_if(chunks, [&part](const ReadChunk& one) {
        return one.chunk->first_position() == part.first_position();
      });
      if (found != chunks.end()) {
        found->share += part.share();
      } else if (chunks.size() < kSourceChunksMax) {
        chunks.push_back({.chunk = &part, .share = part.share()});
      }
    }
  }
  return chunks;
}

}  // namespace

std::vector<std::string_view> SentencesIn(std::string_view text) {
  std::vector<std::string_view> sentences;
  size_t begin = 0;
  const auto add = [&](size_t end) {
    const std::string_view sentence = Trimmed(text.substr(begin, end - begin));
    if (!sentence.empty()) sentences.push_back(sentence);
    begin = end;
  };
  for (size_t at = 0; at < text.size(); ++at) {
    const bool stop = text[at] == '.' || text[at] == '!' || text[at] == '?';
    const bool spaced = at + 1 == text.size() || text[at + 1] == ' ';
    if (text[at] == '\n' || (stop && spaced)) add(at + 1);
  }
  add(text.size());
  return sentences;
}

size_t SharedBytes(std::string_view answer, std::string_view sentence) {
  const std::vector<std::string> asked = WordsOf(answer);
  const std::vector<std::string> told = WordsOf(sentence);
  size_t answer_bytes = 0;
  for (const std::string& word : asked) answer_bytes += word.size();
  size_t most = 0;
  // run[j]: bytes of the run that ends with the words before i and j; number[j]: it has a number.
  std::vector<size_t> run(told.size() + 1);
  std::vector<bool> number(told.size() + 1);
  for (const std::string& word : asked) {
    for (size_t j = told.size(); j > 0; --j) {
      const bool same = told[j - 1] == word;
      run[j] = same ? run[j - 1] + word.size() : 0;
      number[j] = same && (number[j - 1] || HasNumber(word));
      if (number[j] || run[j] >= kTellingBytes || 2 * run[j] >= answer_bytes)
        most = std::max(most, run[j]);
    }
  }
  return most;
}

std::string SourceText(const AnswerSource& source) {
  const std::string tokens =
      fmt::format("tokens {} to {} ({})", Count(source.first_position),
                  Count(source.first_position + source.tokens - 1), Printable(source.tier));
  if (!source.found) return tokens + " most; no sentence told there shares its words";
  std::string sentence = source.sentence;
  std::replace(sentence.begin(), sentence.end(), '\n', ' ');
  return tokens + ": " + Printable(sentence);
}

Result<std::optional<AnswerSource>> FindSource(client::Client& client, const std::string& session,
                                               const v1::Explanation& explanation) {
  Turns turns(client, session);
  const auto explained = turns.At(explanation.turn());
  MNEME_TRY(explained);
  const std::string answer = AnswerIn(**explained);
  std::vector<ReadChunk> chunks = ChunksOf(explanation);
  AnswerSource source;
  if (!chunks.empty()) {
    const v1::Contribution& most = *std::ranges::max_element(chunks, {}, &ReadChunk::share)->chunk;
    source = {.first_position = most.first_position(),
              .tokens = most.tokens(),
              .tier = most.tier(),
              .sentence = {}};
  }
  v1::Contribution recent;
  const uint64_t begin =
      (*explained)->parts().empty() ? 0 : (*explained)->parts(0).first_position();
  recent.set_tokens(std::min(begin, kRecentTokens));
  recent.set_first_position(begin - recent.tokens());
  recent.set_tier("recent");
  chunks.push_back({.chunk = &recent});
  size_t shared = 0;
  for (const ReadChunk& one : chunks) {
    const uint64_t end = one.chunk->first_position() + one.chunk->tokens();
    const auto first = turns.FirstBeyond(one.chunk->first_position(), explanation.turn());
    MNEME_TRY(first);
    // The explained turn itself holds the question, and nothing that was told before.
    for (uint64_t number = *first; number < explanation.turn(); ++number) {
      const auto turn = turns.At(number);
      MNEME_TRY(turn);
      if (!(*turn)->parts().empty() && (*turn)->parts(0).first_position() >= end) break;
      LookInto(**turn, *one.chunk, answer, source, shared);
    }
  }
  if (source.tokens == 0) return std::optional<AnswerSource>();
  return std::optional<AnswerSource>(std::move(source));
}

}  // namespace mneme::cli
