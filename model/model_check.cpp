#include "model/model_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "model/chat_template.h"
#include "model/fingerprints.h"
#include "model/local_session.h"
#include "model/mhla_session.h"
#include "model/model_folder.h"

namespace mneme::model {
namespace {

constexpr const char* kBesideWeights[] = {"router.safetensors", "mixing.safetensors"};

struct Numbers {
  uint64_t numbers = 0;
  uint64_t tensors = 0;
  uint64_t other = 0;  // tensors of types that no model is computed with
};

Status CheckNumbers(const WeightFile& file, Numbers& seen) {
  MNEME_TRY(file.CheckFinite());
  for (const StoredTensor& tensor : file.tensors()) {
    const auto dtype = tensor.kernel_dtype();
    if (!dtype || *dtype == kernels::Dtype::kI8) {
      ++seen.other;
      continue;
    }
    seen.numbers += tensor.bytes.size() / kernels::BytesOf(*dtype);
    ++seen.tensors;
  }
  return {};
}

Result<std::string> CheckAllNumbers(const std::filesystem::path& folder) {
  const auto files = WeightFolder::Open(folder);
  MNEME_TRY(files);
  Numbers seen;
  for (const WeightFile& file : files->files()) MNEME_TRY(CheckNumbers(file, seen));
  std::error_code ignored;
  for (const char* name : kBesideWeights) {
    if (!std::filesystem::exists(folder / name, ignored)) continue;
    const auto file = WeightFile::Open(folder / name);
    MNEME_TRY(file);
    MNEME_TRY(CheckNumbers(*file, seen));
  }
  std::string found = fmt::format("{} in {} tensors, all finite", seen.numbers, seen.tensors);
  if (seen.other > 0) found += fmt::format("; {} tensors of other types not looked at", seen.other);
  return found;
}

// What the tokenizer is to a model of so many rows of embedding.
template <typename Folder>
Result<std::string> CheckTokenizer(const Folder& folder, int vocab, int* ids) {
  *ids = vocab;
  auto tokenizer = folder.OpenTokenizer();
  if (!tokenizer && tokenizer.error().code() == ErrorCode::kNotFound)
    return std::string("no tokenizer.json: the model runs on ids");
  MNEME_TRY(tokenizer);
  if (tokenizer->vocab_size() > vocab)
    return Fail(ErrorCode::kInvalidArgument,
                "tokenizer.json: expected at most {} ids, as the model's vocabulary has, found {}: "
                "is it another model's?",
                vocab, tokenizer->vocab_size());
  *ids = tokenizer->vocab_size();
  const auto chat = ChatTemplate::MakeIfAny(*tokenizer);
  MNEME_TRY(chat);
  return fmt::format("{} ids for {} rows of the embedding; {}", tokenizer->vocab_size(), vocab,
                     chat->has_chat() ? "with a chat form" : "no chat form: text and ids");
}

std::vector<int32_t> CheckIds(int ids) {
  std::vector<int32_t> tokens(kCheckTokens);
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>((i * 7919 + i * i % 101 + 13) % static_cast<size_t>(ids));
  return tokens;
}

// The logits after all tokens, read as one prompt and one by one.
template <typename Session, typename Model>
Result<std::string> CheckTokens(Model& model, int vocab, int ids) {
  const std::vector<int32_t> tokens = CheckIds(ids);
  std::vector<float> whole(static_cast<size_t>(vocab));
  std::vector<float> single(whole.size());
  Session prompt(model);
  MNEME_TRY(prompt.Read(tokens));
  const auto one = prompt.Next({}, whole);
  MNEME_TRY(one);
  Session drawn(model);
  for (const int32_t token : tokens) MNEME_TRY(drawn.Feed(token));
  const auto other = drawn.Next({}, single);
  MNEME_TRY(other);

  float largest = 1.0f;
  float apart = 0.0f;
  for (size_t i = 0; i < whole.size(); ++i) {
    if (!std::isfinite(whole[i]) || !std::isfinite(single[i]))
      return Fail(ErrorCode::kCorruption,
                  "tokens: the logit of id {} after {} tokens is not finite", i, tokens.size());
    largest = std::max(largest, std::fabs(whole[i]));
    apart = std::max(apart, std::fabs(whole[i] - single[i]));
  }
  if (apart > kCheckTolerance * largest)
    return Fail(ErrorCode::kCorruption,
                "tokens: logits after {} tokens read as a prompt and one by one are {} apart, "
                "expected at most {}",
                tokens.size(), apart, kCheckTolerance * largest);
  return fmt::format("{} read as a prompt and one by one: logits {:.1e} apart of {:.1f}, {} token",
                     tokens.size(), apart, largest,
                     *one == *other ? "the same next" : "another likeliest");
}

class Checking {
 public:
  Checking(const std::filesystem::path& path, const ModelCheckOptions& options,
           const std::function<void(const ModelCheckPart&)>& report)
      : path_(path), options_(options), report_(report) {}

  Status Run() {
    std::error_code ignored;
    MNEME_TRY(Fingerprints::Open({}).CheckSums(path_));
    report_({"files", std::filesystem::exists(path_ / "SHA256SUMS", ignored)
                          ? "as SHA256SUMS lists them"
                          : "no SHA256SUMS to compare them with"});
    const auto mhla = IsMhlaFolder(path_);
    MNEME_TRY(mhla);
    return *mhla ? RunMhla() : RunServed();
  }

 private:
  Status Report(const char* name, Result<std::string> found) {
    MNEME_TRY(found);
    report_({name, std::move(*found)});
    return {};
  }

  Status RunServed() {
    const auto folder = ModelFolder::Open(path_);
    MNEME_TRY(folder);
    const auto reader = folder->ChooseReader(options_.reader);
    MNEME_TRY(reader);
    const ModelConfig& config = folder->config();
    report_({"tensors",
             fmt::format("{} layers, {} parameters, as the configuration calls for; {} reader",
                         config.layer_count(), folder->weights().parameters, NameOf(*reader))});
    MNEME_TRY(Report("numbers", CheckAllNumbers(path_)));
    int ids = 0;
    MNEME_TRY(Report("tokenizer", CheckTokenizer(*folder, config.vocab, &ids)));
    auto model = LocalModel::Load(*folder, {.reader = std::string(NameOf(*reader)),
                                            .page_dtype = options_.page_dtype,
                                            .threads = options_.threads,
                                            .host_bytes_max = options_.host_bytes_max,
                                            .progress = {}});
    MNEME_TRY(model);
    report_({"memory", "the model and a session fit"});
    return Report("tokens", CheckTokens<LocalSession>(**model, config.vocab, ids));
  }

  Status RunMhla() {
    if (!options_.reader.empty() && options_.reader != NameOf(memory::Reader::kMhla))
      return Fail(ErrorCode::kInvalidArgument,
                  "reader {}: an MHLA language model has no reader but mhla", options_.reader);
    const auto folder = MhlaFolder::Open(path_);
    MNEME_TRY(folder);
    const MhlaConfig& config = folder->config();
    report_({"tensors", fmt::format("{} layers, {} parameters, as the configuration calls for; an "
                                    "MHLA language model",
                                    config.layers, folder->weights().parameters)});
    MNEME_TRY(Report("numbers", CheckAllNumbers(path_)));
    int ids = 0;
    MNEME_TRY(Report("tokenizer", CheckTokenizer(*folder, config.vocab, &ids)));
    MhlaOptions options;
    options.threads = options_.threads;
    options.session_bytes_max = options_.host_bytes_max;
    auto model = MhlaModel::Load(*folder, options);
    MNEME_TRY(model);
    report_({"memory", "the model and a session fit"});
    return Report("tokens", CheckTokens<MhlaSession>(**model, config.vocab, ids));
  }

  const std::filesystem::path& path_;
  const ModelCheckOptions& options_;
  const std::function<void(const ModelCheckPart&)>& report_;
};

}  // namespace

Status CheckModel(const std::filesystem::path& folder, const ModelCheckOptions& options,
                  const std::function<void(const ModelCheckPart&)>& report) {
  return Checking(folder, options, report).Run();
}

}  // namespace mneme::model
