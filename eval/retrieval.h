// Retrieval measures whether a model answers what it was told long ago: histories are read through
// the engine's own steps, and every question is answered greedily in a fork of the read history.
//
// An answer is right when it is the expected text to the letter.
//
// Threads:  one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/history.h"
#include "model/local_session.h"

namespace mneme::eval {

struct RetrievalOptions {
  HistoryOptions history;
  int histories = 1;
  uint64_t seed = 0;
  bool close_gates = false;  // no query reads any closed chunk: what memory is worth
  // Called with questions answered and in all; may be empty.
  std::function<void(int done, int total)> progress;
};

struct Answered {
  Question question;
  std::string answer;

  bool right() const { return answer == question.answer; }
};

struct RecallCount {
  int asked = 0;
  int right = 0;

  void Add(bool is_right) {
    ++asked;
    right += is_right ? 1 : 0;
  }
};

// Equal shares of a history that answers are counted by.
inline constexpr int kDepthBins = 10;

struct RetrievalCount {
  RecallCount all, corrected, untold;
  std::array<RecallCount, kDepthBins> by_depth;  // of facts told, by the newest statement's place
  uint64_t tokens_read = 0;
  double read_seconds = 0;
  std::vector<model::GateCount> history_gates;  // [routed layers]  while histories were read
  std::vector<model::GateCount> answer_gates;   // [routed layers]  while answers were written
  std::vector<Answered> answers;                // in the order of asking
};

// The share that a fact at this depth, in [0, 1], is counted in.
int DepthBin(double depth);

// Tokens of the longest answer that is waited for.
inline constexpr int kAnswerTokensMax = 64;

Result<RetrievalCount> MeasureRetrieval(model::LocalModel& model, const model::Tokenizer& tokenizer,
                                        const Corpus& corpus, const RetrievalOptions& options);

struct QuestionsOptions {
  size_t tokens = 0;  // length of the history
  uint64_t seed = 0;
  bool close_gates = false;
  std::function<void(int done, int total)> progress;  // as in RetrievalOptions
};

// Asks what people wrote, told in one history among the texts of `corpus`.
Result<RetrievalCount> MeasureQuestions(model::LocalModel& model, const model::Tokenizer& tokenizer,
                                        const Corpus& corpus,
                                        const std::vector<WrittenQuestion>& questions,
                                        const QuestionsOptions& options);

}  // namespace mneme::eval
