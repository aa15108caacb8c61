// History is a conversation to be remembered: facts told at random depths among pasted texts, and
// the questions asked after it, each of which is asked in a fork of its own.
//
// HistoryWriter makes histories of one corpus by the rules of eval/corpus/README.md. The demo tells
// and asks with it too, so it hands out messages and, for reading without a server, token ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/phrases.h"
#include "eval/questions.h"
#include "model/chat_template.h"
#include "model/tokenizer.h"

namespace mneme::eval {

// What a person says, and what is answered without being asked anything.
struct Exchange {
  std::string message;
  std::string reply;
};

enum class QuestionKind : uint8_t {
  kTold,       // a fact told once
  kCorrected,  // a fact told twice; the newer value is right
  kUntold      // never told
};

struct Question {
  QuestionKind kind = QuestionKind::kTold;
  double depth = -1;   // where the newest statement stands, as a share of the history; -1: nowhere
  std::string text;    // what is asked
  std::string answer;  // what must be answered, to the letter
};

struct History {
  std::vector<Exchange> exchanges;
  std::vector<int32_t> ids;  // of all exchanges
  std::vector<Question> questions;
};

struct HistoryOptions {
  size_t tokens = 0;         // length of the history
  int facts = 10;            // facts told, each asked once
  int corrected = 0;         // of them told a second time with another value
  int untold = 0;            // further questions about things never told
  double first_depth = 0.0;  // facts stand between these shares of the history
  double last_depth = 0.95;
  bool even = false;  // between them each fact has an equal share of its own
};

// kInvalidArgument when there is no room for the facts.
Status CheckHistory(const HistoryOptions& options);
// The same for what `questions` tell.
Status CheckHistory(const std::vector<WrittenQuestion>& questions, size_t tokens);

class HistoryWriter {
 public:
  // All three must outlive it.
  HistoryWriter(const Corpus& corpus, const model::Tokenizer& tokenizer,
                const model::ChatTemplate& chat, uint64_t seed);

  // Errors: as CheckHistory
  Result<History> Write(const HistoryOptions& options);
  // A history of `tokens` tokens in which everything that `questions` tell stands at even distances
  // in the first 95 %, each question's sentences in their order.
  // Errors: as CheckHistory
  Result<History> Write(const std::vector<WrittenQuestion>& questions, size_t tokens);

  // The tokens of a question and of the prompt to answer it.
  Result<std::vector<int32_t>> QuestionIds(const Question& question) const;
  // The tokens of its answer, with the one that ends a turn.
  Result<std::vector<int32_t>> AnswerIds(const Question& question) const;

 private:
  struct Telling {
    double depth = 0;
    size_t key = 0;
    bool correction = false;
  };
  struct WrittenTelling {
    size_t question = 0;
    size_t sentence = 0;
  };

  std::vector<Key> Keys(size_t count);
  std::vector<Telling> Plan(const HistoryOptions& options);
  // In the order of telling.
  std::vector<WrittenTelling> Plan(const std::vector<WrittenQuestion>& questions);
  // One pasted text of about `tokens` tokens.
  Result<std::string> PastedText(size_t tokens);
  Status PasteUntil(History& history, size_t tokens);
  Status Add(History& history, std::string message, const std::vector<std::string>& replies);

  const Corpus& corpus_;
  const model::Tokenizer& tokenizer_;
  const model::ChatTemplate& chat_;
  Random random_;
  Phrases phrases_;
};

}  // namespace mneme::eval
