// mneme demo: a server is told facts, reads tens of thousands of tokens of other things, is killed,
// comes back and answers from memory. Everything is checked; nothing is assumed.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/file_error.h"
#include "cli/answer_source.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/server_process.h"
#include "cli/terminal.h"
#include "eval/history.h"
#include "model/model_folder.h"

namespace mneme::cli {
namespace {

constexpr char kSession[] = "demo";
constexpr char kLogFile[] = "serve.log";
constexpr char kFooter[] = R"(
examples:
  mneme demo --model checkpoints/demo
  mneme demo --model checkpoints/demo --json

Exits with 0 only if every answer is right, pages came back from disk, nothing was computed that was
in memory, and the first word came in under a tenth of the time that reading the history took.)";

struct DemoCommand {
  std::string model;
  std::string corpus = "eval/corpus";
  std::string store;
  size_t tokens = 30'000;
  int facts = 10;
  uint64_t seed = 1;
  bool json = false;
};

double Seconds(int64_t from_us) {
  return static_cast<double>(RealClock().MonotonicUs() - from_us) * 1e-6;
}

std::string BytesByTier(const v1::StatsReply& stats) {
  return fmt::format("host {} of {}, disk {}", Bytes(stats.bytes().host_bytes()),
                     Bytes(stats.host_bytes_max()), Bytes(stats.bytes().disk_bytes()));
}

boost::json::object BytesJson(const v1::StatsReply& stats) {
  return {{"host_bytes", stats.bytes().host_bytes()},
          {"host_bytes_max", stats.host_bytes_max()},
          {"disk_bytes", stats.bytes().disk_bytes()}};
}

// Empties the folder of an earlier demo; nobody else's.
Status EmptyFolder(const std::filesystem::path& folder) {
  std::error_code failure;
  if (std::filesystem::exists(folder, failure) && !std::filesystem::is_empty(folder, failure) &&
      !std::filesystem::exists(folder / kLogFile, failure)) {
    return Fail(
        ErrorCode::kConflict,
        "folder {}: holds what no demo wrote; name an empty folder, or one that is not there",
        folder.string());
  }
  std::filesystem::remove_all(folder, failure);
  if (!failure) std::filesystem::create_directories(folder, failure);
  if (!failure) return {};
  return Fail(ErrorCode::kUnavailable, "folder {}",
              FileErrorText(folder.string(), "emptied and made again", failure.value()));
}

class Demo {
 public:
  explicit Demo(const DemoCommand& command) : command_(command) {}

  // Whether everything held; with --json, else a check that failed is an error.
  Result<bool> Run();

 private:
  Status Prepare();
  Status StartServer();
  Status Tell();
  Status Exchange(const eval::Exchange& exchange, bool last);
  Status KillAndReturn();
  Status Ask();
  Status AskOne(const eval::Question& question, bool first);
  Result<boost::json::value> ShowSource(const eval::Question& question);
  Status CheckCounters();
  bool Check(bool holds, const std::string& what);
  // Prints what people are told as it happens; programs get `report_` at the end.
  void Say(const std::string& text) const;

  const DemoCommand command_;
  std::filesystem::path folder_;
  uint64_t host_bytes_max_ = 0;
  eval::History history_;
  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<client::Client> client_;
  double read_seconds_ = 0;
  double first_token_seconds_ = 0;
  uint64_t recalled_tokens_ = 0;  // replayed and fresh since the return, as the replies said
  int failures_ = 0;
  boost::json::object report_;  // what --json prints
  boost::json::array checks_;
};

void Demo::Say(const std::string& text) const {
  if (command_.json) return;
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

bool Demo::Check(bool holds, const std::string& what) {
  Say(fmt::format("  {} {}", holds ? "ok     " : "FAILED ", what));
  checks_.push_back({{"holds", holds}, {"what", what}});
  failures_ += holds ? 0 : 1;
  return holds;
}

// The history to tell, and a cap that holds a quarter of the pages it will make.
Status Demo::Prepare() {
  const auto folder = model::ModelFolder::Open(command_.model);
  MNEME_TRY(folder);
  if (!folder->router().has_router()) {
    return Fail(ErrorCode::kInvalidArgument,
                "the demo needs a model with a router; {} has no router.safetensors",
                command_.model);
  }
  const auto tokenizer = folder->OpenTokenizer();
  MNEME_TRY(tokenizer);
  const auto chat = model::ChatTemplate::Make(*tokenizer);
  MNEME_TRY(chat);
  const auto corpus = eval::Corpus::Load(std::filesystem::path(command_.corpus) / "train");
  MNEME_TRY(corpus);
  eval::HistoryWriter writer(*corpus, *tokenizer, *chat, command_.seed);
  auto history =
      writer.Write({.tokens = command_.tokens, .facts = command_.facts, .last_depth = 0.1});
  MNEME_TRY(history);
  history_ = std::move(*history);

  const memory::MemoryLayout layout = model::LayoutOf(folder->config(), folder->router(),
                                                      memory::Reader::kHla, kernels::Dtype::kF16);
  const uint64_t chunks = history_.ids.size() / static_cast<uint64_t>(layout.chunk_tokens());
  const uint64_t page_bytes =
      chunks * static_cast<uint64_t>(layout.groups_per_chunk()) * layout.group_bytes();
  host_bytes_max_ = page_bytes / 4;
  MNEME_TRY(folder->CheckFitsMachine(memory::Reader::kHla, kernels::Dtype::kF16));
  folder_ = command_.store.empty() ? std::filesystem::temp_directory_path() / "mneme-demo"
                                   : std::filesystem::path(command_.store);
  MNEME_TRY(EmptyFolder(folder_));
  Say(fmt::format("model {}, {} tokens to tell, {} facts in the first tenth", command_.model,
                  Count(history_.ids.size()), history_.questions.size()));
  Say(fmt::format("{} of pages will be made; host memory is capped at {}, the rest goes to disk",
                  Bytes(page_bytes), Bytes(host_bytes_max_)));
  report_ = {{"model", command_.model},
             {"history_tokens", history_.ids.size()},
             {"facts", history_.questions.size()},
             {"page_bytes", page_bytes},
             {"host_bytes_max", host_bytes_max_},
             {"server_ready_seconds", boost::json::array()},
             {"told", boost::json::array()},
             {"answers", boost::json::array()}};
  return {};
}

Status Demo::StartServer() {
  const int64_t started_us = RealClock().MonotonicUs();
  auto server =
      ServerProcess::Start({"--model", command_.model, "--store", (folder_ / "store").string(),
                            "--memory.host_bytes_max", std::to_string(host_bytes_max_)},
                           (folder_ / kLogFile).string());
  MNEME_TRY(server);
  server_ = std::move(*server);
  auto client = server_->Connect();
  MNEME_TRY(client);
  client_ = std::move(*client);
  const double seconds = Seconds(started_us);
  Say(fmt::format("server ready after {:.1f} s", seconds));
  report_["server_ready_seconds"].as_array().push_back(seconds);
  return {};
}

Status Demo::Exchange(const eval::Exchange& exchange, bool last) {
  v1::AppendRequest request;
  request.set_session(kSession);
  request.set_wait_until_computed(last);
  v1::Messages* messages = request.mutable_input()->mutable_messages();
  v1::Message* message = messages->add_messages();
  message->set_role(v1::ROLE_USER);
  message->set_content(exchange.message);
  message = messages->add_messages();
  message->set_role(v1::ROLE_ASSISTANT);
  message->set_content(exchange.reply);
  const auto appended = client_->Append(std::move(request));
  MNEME_TRY(appended);
  return {};
}

Status Demo::Tell() {
  const auto opened = client_->Open(kSession);
  MNEME_TRY(opened);
  Say("\ntelling:");
  const int64_t started_us = RealClock().MonotonicUs();
  const size_t each = std::max<size_t>(history_.exchanges.size() / 8, 1);
  for (size_t index = 0; index < history_.exchanges.size(); ++index) {
    const bool last = index + 1 == history_.exchanges.size();
    // Waiting now and then keeps the figures honest: what is told is also computed.
    const bool shown = last || index % each == each - 1;
    MNEME_TRY(Exchange(history_.exchanges[index], shown));
    if (!shown) continue;
    const auto stats = client_->Stats("");
    MNEME_TRY(stats);
    const double seconds = Seconds(started_us);
    const double rate = static_cast<double>(stats->tokens_computed()) / seconds;
    Say(fmt::format("  {:>7} tokens, {:>5.0f} tokens/s, {}", Count(stats->tokens_computed()), rate,
                    BytesByTier(*stats)));
    report_["told"].as_array().push_back({{"tokens", stats->tokens_computed()},
                                          {"tokens_per_second", rate},
                                          {"bytes", BytesJson(*stats)}});
  }
  read_seconds_ = Seconds(started_us);
  Say(fmt::format("  told and read in {:.1f} s", read_seconds_));
  report_["read_seconds"] = read_seconds_;
  return {};
}

Status Demo::KillAndReturn() {
  Say("\nkill -9");
  client_.reset();
  server_->Kill();
  MNEME_TRY(StartServer());
  const auto opened = client_->Open(kSession, /*create=*/false);
  MNEME_TRY(opened);
  const uint64_t restored = opened->memory().restored_tokens();
  const uint64_t left = opened->head().position() - restored;
  Say(fmt::format("session {}: {}, {}; {} restored, {} to compute again", kSession,
                  CountOf(opened->head().turn(), "turn"),
                  CountOf(opened->head().position(), "token"), Count(restored), Count(left)));
  report_["resumed"] = {{"turns", opened->head().turn()},
                        {"tokens", opened->head().position()},
                        {"restored_tokens", restored},
                        {"tokens_to_compute", left}};
  return {};
}

Status Demo::AskOne(const eval::Question& question, bool first) {
  v1::GenerateRequest request;
  request.set_session(kSession);
  request.set_explain(true);
  request.set_max_tokens(64);
  v1::Message* message = request.mutable_input()->mutable_messages()->add_messages();
  message->set_role(v1::ROLE_USER);
  message->set_content(question.text);
  const int64_t asked_us = RealClock().MonotonicUs();
  double first_seconds = 0;
  const auto done = client_->Generate(std::move(request), [&](const v1::Event& event) {
    if (event.has_token() && first_seconds == 0) first_seconds = Seconds(asked_us);
  });
  MNEME_TRY(done);
  if (first) first_token_seconds_ = first_seconds == 0 ? Seconds(asked_us) : first_seconds;
  recalled_tokens_ += done->memory().replayed_tokens() + done->memory().fresh_tokens();
  Say(fmt::format("  {}\n    {}", Printable(question.text), Printable(done->text())));
  const auto source = ShowSource(question);
  MNEME_TRY(source);
  const bool right = Check(done->text() == question.answer,
                           fmt::format("the answer is `{}`", Printable(question.answer)));
  report_["answers"].as_array().push_back({{"question", question.text},
                                           {"answer", done->text()},
                                           {"expected", question.answer},
                                           {"right", right},
                                           {"source", *source}});
  return {};
}

// The sentence that the last answer was read from; null where it does not hold the answer.
Result<boost::json::value> Demo::ShowSource(const eval::Question& question) {
  v1::ExplainRequest request;
  request.set_session(kSession);
  const auto explanation = client_->Explain(std::move(request));
  MNEME_TRY(explanation);
  const auto source = FindSource(*client_, kSession, *explanation);
  MNEME_TRY(source);
  const std::string value = question.answer.substr(0, question.answer.size() - 1);
  const bool holds = *source && (*source)->sentence.find(value) != std::string::npos;
  if (!holds) {
    Check(false, fmt::format("a sentence with `{}` was read", Printable(value)));
    return boost::json::value();
  }
  Say("    from " + SourceText(**source));
  return boost::json::value({{"first_position", (*source)->first_position},
                             {"tokens", (*source)->tokens},
                             {"tier", (*source)->tier},
                             {"sentence", (*source)->sentence}});
}

Status Demo::Ask() {
  Say("\nasking:");
  for (size_t index = 0; index < history_.questions.size(); ++index)
    MNEME_TRY(AskOne(history_.questions[index], index == 0));
  return {};
}

Status Demo::CheckCounters() {
  const auto stats = client_->Stats("");
  MNEME_TRY(stats);
  Say("\nchecks:");
  Check(stats->page_store_reads() > 0,
        fmt::format("{} page groups ({}) came back from disk", stats->page_store_reads(),
                    Bytes(stats->page_store_read_bytes())));
  Check(stats->tokens_computed() <= recalled_tokens_,
        fmt::format("{} tokens computed since the return, {} replayed or new",
                    Count(stats->tokens_computed()), Count(recalled_tokens_)));
  Check(first_token_seconds_ < read_seconds_ / 10,
        fmt::format("first word after {:.2f} s, reading the history took {:.1f} s",
                    first_token_seconds_, read_seconds_));
  Say(fmt::format("  {}", BytesByTier(*stats)));
  report_["page_store_reads"] = stats->page_store_reads();
  report_["page_store_read_bytes"] = stats->page_store_read_bytes();
  report_["tokens_computed"] = stats->tokens_computed();
  report_["tokens_replayed_or_new"] = recalled_tokens_;
  report_["first_word_seconds"] = first_token_seconds_;
  report_["bytes"] = BytesJson(*stats);
  return {};
}

Result<bool> Demo::Run() {
  MNEME_TRY(Prepare());
  MNEME_TRY(StartServer());
  MNEME_TRY(Tell());
  MNEME_TRY(KillAndReturn());
  MNEME_TRY(Ask());
  MNEME_TRY(CheckCounters());
  client_.reset();
  Check(server_->Stop() == 0, "the server stops cleanly");
  report_["checks"] = checks_;
  report_["passed"] = failures_ == 0;
  report_["server_log"] = (folder_ / kLogFile).string();
  if (command_.json) {
    fmt::print("{}\n", boost::json::serialize(report_));
    return failures_ == 0;
  }
  if (failures_ > 0) {
    return Fail(ErrorCode::kInternal, "{} checks failed; the server's log is {}", failures_,
                (folder_ / kLogFile).string());
  }
  Say("\neverything held");
  return true;
}

}  // namespace

int RunDemo(int argc, char** argv) {
  DemoCommand command;
  CLI::App app("Shows that a killed server still knows what it was told.", "mneme demo");
  app.footer(kFooter);
  app.add_option("--model", command.model, "the model folder")->required();
  app.add_option("--corpus", command.corpus, "folder with facts and texts to tell")
      ->capture_default_str();
  app.add_option("--store", command.store,
                 "folder to work in; an earlier demo's is emptied first (default: temporary)");
  app.add_option("--tokens", command.tokens, "length of the conversation")
      ->check(CLI::Range(4096, 1 << 24))
      ->capture_default_str();
  app.add_option("--facts", command.facts, "facts told")->check(CLI::Range(1, 1000));
  app.add_option("--seed", command.seed, "any seed tells other facts")->capture_default_str();
  app.add_flag("--json", command.json, "one JSON object instead of text");
  if (const int exit = ParseCommandLine(app, argc, argv); exit >= 0) return exit;
  const auto held = Demo(command).Run();
  if (!held) return Complain("demo", held.error(), command.json);
  return *held ? kExitOk : kExitFailed;
}

}  // namespace mneme::cli
