#include "cli/make_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/log.h"
#include "cli/standard_streams.h"
#include "engine/engine.h"
#include "memory/hash.h"
#include "memory/page_store.h"
#include "memory/store_folder.h"
#include "memory/turn_store.h"
#include "model/fingerprints.h"
#include "model/loaded_model.h"
#include "model/model_folder.h"
#include "model/tokenizer_file.h"

namespace mneme::cli {
namespace {

// Everything that serves one model, made in this order and let go in the other.
class ServedModel : public engine::Service {
 public:
  static Result<std::unique_ptr<engine::Service>> Make(const v1::ServerConfig& config,
                                                       const StartOptions& start);

  ~ServedModel() override { engine_.reset(); }

  Status Submit(std::shared_ptr<engine::Call> call) override {
    return engine_->Submit(std::move(call));
  }
  v1::Health Health() override { return engine_->Health(); }

 private:
  Status OpenModel(const v1::ServerConfig& config);
  Status OpenStores(const v1::ServerConfig& config, const StartOptions& start);
  Status LoadModel();
  Status TakeFingerprints();
  Status StartEngine();

  // Until the model is loaded.
  std::optional<model::ModelFolder> model_folder_;
  memory::Reader reader_ = memory::Reader::kNative;
  kernels::Dtype page_dtype_ = kernels::Dtype::kF16;

  engine::EngineOptions options_;
  std::unique_ptr<model::LoadedModel> model_;
  std::unique_ptr<model::Tokenizer> tokenizer_;
  std::unique_ptr<memory::StoreFolder> folder_;
  std::unique_ptr<memory::TurnStore> log_;
  std::unique_ptr<memory::PageStore> pages_;
  std::unique_ptr<engine::Engine> engine_;
};

// Reads headers, numbers and the tokenizer; what cannot be served is refused here.
Status ServedModel::OpenModel(const v1::ServerConfig& config) {
  page_dtype_ = config.memory().page_dtype() == "f32" ? kernels::Dtype::kF32 : kernels::Dtype::kF16;
  auto folder = model::ModelFolder::Open(config.model_dir());
  MNEME_TRY(folder);
  const auto reader = folder->ChooseReader(config.reader());
  MNEME_TRY(reader);
  reader_ = *reader;
  MNEME_TRY(folder->CheckFitsMachine(reader_, page_dtype_));
  auto tokenizer = folder->OpenTokenizer();
  MNEME_TRY(tokenizer);
  tokenizer_ = std::make_unique<model::Tokenizer>(std::move(*tokenizer));
  MNEME_TRY(engine::Engine::Check(
      options_, *tokenizer_,
      model::LayoutOf(folder->config(), folder->router(), reader_, page_dtype_)));
  MNEME_TRY(folder->CheckFinite());
  model_folder_ = std::move(*folder);
  return {};
}

Status ServedModel::LoadModel() {
  const model::ModelFolder& folder = *model_folder_;
  MNEME_TRY(TakeFingerprints());
  Say(fmt::format("loading {}, reader {}", folder.path().string(), memory::NameOf(reader_)));
  auto model =
      model::LoadedModel::Make(folder.config(), folder.weights(), folder.router(), reader_,
                               page_dtype_, kernels::CpuKernels(), [](int done, int total) {
                                 if (done == total || done % std::max(total / 10, 1) == 0)
                                   Say(fmt::format("packed {} of {} parts", done, total));
                               });
  MNEME_TRY(model);
  model_ = std::move(*model);
  model_folder_.reset();
  return {};
}

// What sessions are bound to, and whether the files are what their folder says.
Status ServedModel::TakeFingerprints() {
  const model::ModelFolder& folder = *model_folder_;
  auto fingerprints = model::Fingerprints::Open(folder_->fingerprints_path());
  MNEME_TRY(fingerprints.CheckSums(folder.path()));
  options_.identity.weights_hash = fingerprints.Of(folder.files().FingerprintFiles());
  options_.identity.config_hash = memory::Sha256(AsBytes(folder.config().ForwardText()));
  const auto router = folder.router().FingerprintFiles(reader_);
  if (!router.empty()) options_.identity.router_hash = fingerprints.Of(router);
  const auto tokenizer_file =
      model::MappedFile::Open(folder.path() / "tokenizer.json", model::kTokenizerFileBytesMax);
  MNEME_TRY(tokenizer_file);
  options_.identity.tokenizer_hash = fingerprints.Of(*tokenizer_file);
  MNEME_LOG(kInfo, "model_fingerprint", "bytes_hashed={}", fingerprints.bytes_hashed());
  // Costs the next start a hash, no more.
  if (const Status saved = fingerprints.Save(); !saved)
    MNEME_LOG(kWarning, "fingerprints_not_kept", "error=\"{}\"", saved.error().message());
  return {};
}

// The worst that is known of the log.
std::string WhatIsMissing(const std::vector<memory::Regression>& regressions,
                          const std::string& folder) {
  const bool unproved = std::ranges::all_of(regressions, [](const memory::Regression& regression) {
    return regression.cause == memory::RegressionCause::kWatermarkMissing;
  });
  if (!unproved) return fmt::format("turns that were acknowledged are missing from {}", folder);
  return fmt::format(
      "the file `watermark` of {} is gone or cannot be read, so nobody can tell whether "
      "acknowledged "
      "turns are missing",
      folder);
}

Status ServedModel::OpenStores(const v1::ServerConfig& config, const StartOptions& start) {
  MNEME_TRY(memory::StoreFolder::CheckRoomForNew(config.store_dir()));
  auto folder = memory::StoreFolder::Open(config.store_dir());
  MNEME_TRY(folder);
  folder_ = std::make_unique<memory::StoreFolder>(std::move(*folder));
  auto log = memory::OpenTurnStore(*folder_, {.sessions_max = config.limits().sessions_max(),
                                              .accept_damage = start.accept_loss});
  MNEME_TRY(log);
  log_ = std::move(*log);
  if (!log_->report().regressions.empty()) {
    if (start.accept_loss) {
      MNEME_TRY(log_->AcceptRegression());
      Say("the loss is accepted: what is left of each session is served");
    } else {
      Say(fmt::format(
          "{}; the sessions concerned are refused.\n"
          "Restore the folder from a copy, or start once with --accept-loss to serve what is left",
          WhatIsMissing(log_->report().regressions, config.store_dir())));
    }
  }
  // Pages can be computed again, so damaged files must not keep the sessions from being served.
  auto pages = memory::OpenPageStore(*folder_, {.start_empty_if_damaged = true});
  MNEME_TRY(pages);
  pages_ = std::move(pages->store);
  return {};
}

// The configuration was loaded with every default filled in.
engine::EngineOptions EngineOptionsFrom(const v1::ServerConfig& config) {
  const auto cores = std::max(std::thread::hardware_concurrency(), 1u);
  const auto as_int = [](uint32_t value) {
    return static_cast<int>(std::min<uint32_t>(value, 1u << 20));
  };
  engine::EngineOptions options;
  options.threads = as_int(config.cpu().threads() == 0 ? cores : config.cpu().threads());
  options.step_ms = as_int(config.scheduler().step_ms());
  options.batch_max = as_int(config.scheduler().batch_max());
  options.running_max = as_int(config.scheduler().running_max());
  options.idle_tokens_max = as_int(config.scheduler().idle_tokens_max());
  options.host_bytes_max = config.memory().host_bytes_max();
  options.readers = as_int(config.memory().readers());
  options.unsaved_tokens_max = config.memory().unsaved_tokens_max();
  options.tokens_per_session_max = config.limits().tokens_per_session_max();
  options.generated_tokens_max = config.limits().generated_tokens_max();
  options.queue_max = config.limits().queue_max();
  options.model_name =
      std::filesystem::path(config.model_dir()).lexically_normal().filename().string();
  return options;
}

Status ServedModel::StartEngine() {
  auto engine = engine::Engine::Make(options_, {.model = model_.get(),
                                                .tokenizer = tokenizer_.get(),
                                                .kernels = &kernels::CpuKernels(),
                                                .folder = folder_.get(),
                                                .log = log_.get(),
                                                .pages = pages_.get()});
  MNEME_TRY(engine);
  engine_ = std::move(*engine);
  return {};
}

Result<std::unique_ptr<engine::Service>> ServedModel::Make(const v1::ServerConfig& config,
                                                           const StartOptions& start) {
  auto served = std::make_unique<ServedModel>();
  served->options_ = EngineOptionsFrom(config);
  // A model that cannot be served makes no store; a store that cannot be had loads no model.
  MNEME_TRY(served->OpenModel(config));
  MNEME_TRY(served->OpenStores(config, start));
  MNEME_TRY(served->LoadModel());
  MNEME_TRY(served->StartEngine());
  return std::unique_ptr<engine::Service>(std::move(served));
}

}  // namespace

Result<std::unique_ptr<engine::Service>> MakeService(const v1::ServerConfig& config,
                                                     const StartOptions& start) {
  return ServedModel::Make(config, start);
}

}  // namespace mneme::cli
