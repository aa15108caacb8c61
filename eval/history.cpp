#include "eval/history.h"

#include <algorithm>

namespace mneme::eval {
namespace {

// Length of one pasted text, tokens.
constexpr int64_t kPasteTokensMin = 100;
constexpr int64_t kPasteTokensMax = 600;
// What a pasted text's frame and reply take beside it, tokens.
constexpr size_t kFrameTokens = 30;
// A history may end this many tokens early rather than with a scrap of a text.
constexpr size_t kSlackTokens = 40;
// Least room for one fact and its reply, tokens.
constexpr size_t kFactTokensMin = 60;
// Share of a history in which written questions are told.
constexpr double kWrittenDepthMax = 0.95;

size_t SentenceCount(const std::vector<WrittenQuestion>& questions) {
  size_t count = 0;
  for (const WrittenQuestion& question : questions) count += question.tell.size();
  return count;
}

}  // namespace

Status CheckHistory(const HistoryOptions& options) {
  const auto facts = static_cast<size_t>(options.facts);
  if (options.facts >= 1 && options.corrected >= 0 && options.corrected <= options.facts &&
      options.tokens >= (facts + static_cast<size_t>(options.corrected)) * kFactTokensMin)
    return {};
  return Fail(ErrorCode::kInvalidArgument,
              "a history of {} tokens has no room for {} facts, {} of them corrected",
              options.tokens, options.facts, options.corrected);
}

Status CheckHistory(const std::vector<WrittenQuestion>& questions, size_t tokens) {
  const size_t sentences = SentenceCount(questions);
  if (tokens >= sentences * kFactTokensMin) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "a history of {} tokens has no room for {} sentences; {} would do", tokens, sentences,
              sentences * kFactTokensMin);
}

HistoryWriter::HistoryWriter(const Corpus& corpus, const model::Tokenizer& tokenizer,
                             const model::ChatTemplate& chat, uint64_t seed)
    : corpus_(corpus),
      tokenizer_(tokenizer),
      chat_(chat),
      random_(seed),
      phrases_(corpus, random_) {}

Result<History> HistoryWriter::Write(const HistoryOptions& options) {
  MNEME_TRY(CheckHistory(options));
  const auto facts = static_cast<size_t>(options.facts);
  const std::vector<Key> keys = Keys(facts + static_cast<size_t>(options.untold));
  std::vector<std::string> values;
  for (size_t fact = 0; fact < facts; ++fact) values.push_back(phrases_.Value(keys[fact]));
  std::vector<double> depths(facts, 0);

  History history;
  for (const Telling& telling : Plan(options)) {
    MNEME_TRY(PasteUntil(history,
                         static_cast<size_t>(telling.depth * static_cast<double>(options.tokens))));
    const Key& key = keys[telling.key];
    std::string& value = values[telling.key];
    if (telling.correction) value = phrases_.Value(key);
    depths[telling.key] =
        static_cast<double>(history.ids.size()) / static_cast<double>(options.tokens);
    MNEME_TRY(
        Add(history,
            telling.correction ? phrases_.Correction(key, value) : phrases_.Statement(key, value),
            corpus_.wording.acknowledgements));
  }
  MNEME_TRY(PasteUntil(history, options.tokens));

  for (size_t index = 0; index < keys.size(); ++index) {
    const bool told = index < facts;
    const bool corrected = index < static_cast<size_t>(options.corrected);
    history.questions.push_back(
        {.kind = !told       ? QuestionKind::kUntold
                 : corrected ? QuestionKind::kCorrected
                             : QuestionKind::kTold,
         .depth = told ? depths[index] : -1,
         .text = phrases_.Question(keys[index]),
         .answer = told ? phrases_.Answer(values[index]) : phrases_.Unknown()});
  }
  return history;
}

Result<History> HistoryWriter::Write(const std::vector<WrittenQuestion>& questions, size_t tokens) {
  MNEME_TRY(CheckHistory(questions, tokens));
  const std::vector<WrittenTelling> plan = Plan(questions);
  const double spacing =
      kWrittenDepthMax * static_cast<double>(tokens) / static_cast<double>(plan.size() + 1);
  std::vector<double> depths(questions.size(), -1);

  History history;
  for (size_t index = 0; index < plan.size(); ++index) {
    MNEME_TRY(PasteUntil(history, static_cast<size_t>(spacing * static_cast<double>(index + 1))));
    const WrittenQuestion& question = questions[plan[index].question];
    depths[plan[index].question] =
        static_cast<double>(history.ids.size()) / static_cast<double>(tokens);
    MNEME_TRY(Add(history, question.tell[plan[index].sentence], corpus_.wording.acknowledgements));
  }
  if (history.ids.size() > tokens)
    return Fail(ErrorCode::kInvalidArgument,
                "a history of {} tokens has no room for {} sentences; they take {}", tokens,
                plan.size(), history.ids.size());
  MNEME_TRY(PasteUntil(history, tokens));

  for (size_t index = 0; index < questions.size(); ++index) {
    const WrittenQuestion& question = questions[index];
    history.questions.push_back(
        {.kind = question.unknown()         ? QuestionKind::kUntold
                 : question.tell.size() > 1 ? QuestionKind::kCorrected
                                            : QuestionKind::kTold,
         .depth = question.unknown() ? -1 : depths[index],
         .text = question.ask,
         .answer = question.unknown() ? phrases_.Unknown() : phrases_.Answer(question.answer)});
  }
  return history;
}

Result<std::vector<int32_t>> HistoryWriter::QuestionIds(const Question& question) const {
  const model::ChatMessage message = {
      .role = model::ChatRole::kUser, .content = question.text, .reasoning = {}, .tool_calls = {}};
  auto ids = chat_.Render({&message, 1}, {.end = model::LogEnd::kBetweenTurns});
  MNEME_TRY(ids);
  auto prompt = chat_.GenerationPrompt(model::LogEnd::kBetweenTurns, /*thinking=*/false);
  MNEME_TRY(prompt);
  ids->insert(ids->end(), prompt->begin(), prompt->end());
  return std::move(*ids);
}

Result<std::vector<int32_t>> HistoryWriter::AnswerIds(const Question& question) const {
  auto ids = tokenizer_.Encode(question.answer, model::SpecialTokens::kAsText);
  MNEME_TRY(ids);
  ids->push_back(*tokenizer_.IdOf("<|im_end|>"));  // ChatTemplate::Make has seen it
  return std::move(*ids);
}

std::vector<Key> HistoryWriter::Keys(size_t count) {
  std::vector<Key> keys;
  while (keys.size() < count) {
    Key key = phrases_.FreshKey();
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(std::move(key));
  }
  return keys;
}

std::vector<HistoryWriter::Telling> HistoryWriter::Plan(const HistoryOptions& options) {
  const double span = options.last_depth - options.first_depth;
  const auto depth = [&](size_t fact) {
    const double place = random_.Unit();
    return options.first_depth +
           span * (options.even ? (static_cast<double>(fact) + place) / options.facts : place);
  };
  std::vector<Telling> plan;
  for (size_t fact = 0; fact < static_cast<size_t>(options.facts); ++fact) {
    const double first = depth(fact);
    if (fact >= static_cast<size_t>(options.corrected)) {
      plan.push_back({.depth = first, .key = fact, .correction = false});
      continue;
    }
    const double second = depth(fact);
    plan.push_back({.depth = std::min(first, second), .key = fact, .correction = false});
    plan.push_back({.depth = std::max(first, second), .key = fact, .correction = true});
  }
  std::stable_sort(plan.begin(), plan.end(),
                   [](const Telling& a, const Telling& b) { return a.depth < b.depth; });
  return plan;
}

std::vector<HistoryWriter::WrittenTelling> HistoryWriter::Plan(
    const std::vector<WrittenQuestion>& questions) {
  // Each place is a question's; its sentences come in their own order whichever places it gets.
  std::vector<size_t> places;
  for (size_t question = 0; question < questions.size(); ++question)
    places.insert(places.end(), questions[question].tell.size(), question);
  for (size_t left = places.size(); left > 1; --left)
    std::swap(places[left - 1], places[random_.Below(left)]);
  std::vector<size_t> told(questions.size(), 0);
  std::vector<WrittenTelling> plan;
  for (const size_t question : places)
    plan.push_back({.question = question, .sentence = told[question]++});
  return plan;
}

Result<std::string> HistoryWriter::PastedText(size_t tokens) {
  const std::vector<std::string>& lines = random_.Pick(corpus_.filler);
  size_t line = random_.Below(lines.size());
  std::string text = random_.Pick(corpus_.wording.filler_intros);
  size_t length = 0;
  while (length < tokens) {
    const std::string& next = lines[line++ % lines.size()];
    text += "\n" + next;
    const auto ids = tokenizer_.Encode(next, model::SpecialTokens::kAsText);
    MNEME_TRY(ids);
    length += ids->size() + 1;
  }
  return text;
}

Status HistoryWriter::PasteUntil(History& history, size_t tokens) {
  while (history.ids.size() + kSlackTokens < tokens) {
    const size_t room = tokens - history.ids.size() - kFrameTokens;
    const auto wanted = static_cast<size_t>(random_.Between(kPasteTokensMin, kPasteTokensMax));
    auto text = PastedText(std::min(wanted, room));
    MNEME_TRY(text);
    MNEME_TRY(Add(history, std::move(*text), corpus_.wording.filler_acknowledgements));
  }
  return {};
}

Status HistoryWriter::Add(History& history, std::string message,
                          const std::vector<std::string>& replies) {
  const std::string& reply = random_.Pick(replies);
  const std::vector<model::ChatMessage> messages = {
      {.role = model::ChatRole::kUser, .content = message, .reasoning = {}, .tool_calls = {}},
      {.role = model::ChatRole::kAssistant, .content = reply, .reasoning = {}, .tool_calls = {}}};
  const auto ids = chat_.Render(
      messages,
      {.end = history.ids.empty() ? model::LogEnd::kEmpty : model::LogEnd::kBetweenTurns});
  MNEME_TRY(ids);
  history.ids.insert(history.ids.end(), ids->begin(), ids->end());
  history.exchanges.push_back({.message = std::move(message), .reply = reply});
  return {};
}

}  // namespace mneme::eval
