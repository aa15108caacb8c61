#include "model/model_folder.h"

#include <fstream>
#include <string>

#include "model/mapped_file.h"
#include "model/mhla_config.h"

namespace mneme::model {

using memory::Reader;

Result<ModelFolder> ModelFolder::Open(const std::filesystem::path& path) {
  auto folder = OpenFiles(path);
  if (!folder) return Fail(InModelFolder(std::move(folder).error(), path));
  return folder;
}

Result<ModelFolder> ModelFolder::OpenFiles(const std::filesystem::path& path) {
  const auto mhla = IsMhlaFolder(path);
  MNEME_TRY(mhla);
  if (*mhla)
    return Fail(ErrorCode::kInvalidArgument,
                "model folder {}: an MHLA language model, which only mneme run and mneme model "
                "inspect read",
                path.string());
  auto config = ModelConfig::Read(path);
  MNEME_TRY(config);
  auto files = WeightFolder::Open(path);
  MNEME_TRY(files);
  ModelFolder folder(path, std::move(*config), std::move(*files));
  auto weights = Weights::Load(folder.files_, folder.config_);
  MNEME_TRY(weights);
  folder.weights_ = std::move(*weights);
  auto router = RouterWeights::Open(path, folder.config_, folder.weights_);
  MNEME_TRY(router);
  folder.router_ = std::move(*router);
  return folder;
}

Result<Reader> ModelFolder::ChooseReader(std::string_view name) const {
  if (name.empty()) return router_.default_reader();
  for (const Reader reader : {Reader::kNative, Reader::kMhla, Reader::kHla}) {
    if (name != NameOf(reader)) continue;
    if (router_.Offers(reader)) return reader;
    return Fail(ErrorCode::kInvalidArgument, "reader {}: {} has no {}; use {}", name,
                path_.string(),
                reader == Reader::kHla ? "router.safetensors" : "mixing.safetensors",
                NameOf(router_.default_reader()));
  }
  return Fail(ErrorCode::kInvalidArgument, "reader {}: expected native, mhla or hla", name);
}

Status ModelFolder::CheckFitsMachine(Reader reader, kernels::Dtype page_dtype) const {
  const uint64_t available = AvailableMemoryBytes();
  if (available == 0) return {};
  const MemoryNeeds needs = MemoryNeeds::Of(config_, weights_, router_, page_dtype);
  if (Status fits = CheckFits(needs, reader, available); !fits)
    return Fail(std::move(fits.error()).Within("model folder " + path_.string()));
  return {};
}

Status ModelFolder::CheckFinite() const {
  Status finite = files_.CheckFinite();
  if (finite) finite = router_.CheckFinite();
  if (!finite) return Fail(std::move(finite.error()).Within("model folder " + path_.string()));
  return {};
}

Result<Tokenizer> ModelFolder::OpenTokenizer() const {
  return Tokenizer::Load((path_ / "tokenizer.json").string());
}

uint64_t AvailableMemoryBytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  uint64_t kibibytes = 0;
  std::string unit;
  while (file >> key >> kibibytes) {
    std::getline(file, unit);
    if (key == "MemAvailable:") return kibibytes * kKiB;
  }
  return 0;
}

}  // namespace mneme::model
