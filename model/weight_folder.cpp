#include "model/weight_folder.h"

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "model/strict_json.h"

namespace mneme::model {
namespace {

constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";

bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

// Tensor name -> shard, as the index says.
using ShardOf = std::map<std::string, std::string>;

Result<ShardOf> ReadIndex(const std::filesystem::path& path) {
  auto text = ReadTextFile(path, kIndexBytesMax);
  if (!text) return Fail(std::move(text).error());
  auto parsed = ParseStrictJson(*text, kIndexName);
  if (!parsed) return Fail(std::move(parsed).error());
  const auto* top = parsed->if_object();
  const auto* map_value = top == nullptr ? nullptr : top->if_contains("weight_map");
  const auto* map = map_value == nullptr ? nullptr : map_value->if_object();
  if (map == nullptr)
    return Fail(ErrorCode::kCorruption,
                "{}: tensor (all): expected an object weight_map, found none", kIndexName);
  ShardOf shard_of;
  for (const auto& [tensor, file] : *map) {
    const auto* name = file.if_string();
    if (name == nullptr)
      return Fail(ErrorCode::kCorruption, "{}: tensor {}: expected a file name, found no string",
                  kIndexName, Shown(tensor));
    if (!IsPlainFileName(*name))
      return Fail(ErrorCode::kInvalidArgument,
                  "{}: tensor {}: expected the name of a file in this folder, found {}", kIndexName,
                  Shown(tensor), Shown(*name));
    shard_of.emplace(std::string(tensor), std::string(*name));
  }
  if (shard_of.empty())
    return Fail(ErrorCode::kCorruption, "{}: tensor (all): expected tensors, found none",
                kIndexName);
  return shard_of;
}

Status CheckAgainstIndex(const std::vector<WeightFile>& files, const ShardOf& shard_of) {
  std::unordered_map<std::string_view, const WeightFile*> holder;
  for (const WeightFile& file : files) {
    for (const StoredTensor& tensor : file.tensors()) {
      const auto [place, fresh] = holder.emplace(tensor.name, &file);
      if (!fresh)
        return Fail(ErrorCode::kCorruption,
                    "{}: tensor {}: expected it in one file, found it in {} too", file.name(),
                    Shown(tensor.name), place->second->name());
    }
  }
  for (const auto& [tensor, shard] : shard_of) {
    const auto found = holder.find(tensor);
    if (found == holder.end() || found->second->name() != shard)
      return Fail(ErrorCode::kCorruption, "{}: tensor {}: expected it in {}, found it in {}",
                  kIndexName, Shown(tensor), shard,
                  found == holder.end() ? "no file" : found->second->name());
  }
  return {};
}

}  // namespace

Result<WeightFolder> WeightFolder::Open(const std::filesystem::path& folder) {
  WeightFolder result;
  std::error_code ignored;
  if (std::filesystem::exists(folder / kSingleName, ignored)) {
    auto file = WeightFile::Open(folder / kSingleName);
    if (!file) return Fail(std::move(file).error());
    result.files_.push_back(*std::move(file));
    return result;
  }
  if (!std::filesystem::exists(folder / kIndexName, ignored))
    return Fail(ErrorCode::kNotFound, "{}: expected {} or {}, found neither", folder.string(),
                kSingleName, kIndexName);
  auto shard_of = ReadIndex(folder / kIndexName);
  if (!shard_of) return Fail(std::move(shard_of).error());
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : *shard_of) shards.insert(shard);
  if (shards.size() > kShardsMax)
    return Fail(ErrorCode::kInvalidArgument,
                "{}: tensor (all): expected at most {} files, found {}", kIndexName, kShardsMax,
                shards.size());
  for (const std::string& shard : shards) {
    auto file = WeightFile::Open(folder / shard);
    if (!file) return Fail(std::move(file).error());
    result.files_.push_back(*std::move(file));
  }
  MNEME_TRY(CheckAgainstIndex(result.files_, *shard_of));
  return result;
}

WeightFolder::Found WeightFolder::Find(std::string_view name) const {
  for (const WeightFile& file : files_) {
    if (const StoredTensor* tensor = file.Find(name)) return {&file, tensor};
  }
  return {};
}

std::vector<const MappedFile*> WeightFolder::FingerprintFiles() const {
  std::vector<const MappedFile*> files;
  files.reserve(files_.size());
  for (const WeightFile& file : files_) files.push_back(&file.file());
  return files;
}

uint64_t WeightFolder::bytes() const {
  uint64_t bytes = 0;
  for (const WeightFile& file : files_) bytes += file.bytes().size();
  return bytes;
}

Status WeightFolder::CheckFinite() const {
  for (const WeightFile& file : files_) MNEME_TRY(file.CheckFinite());
  return {};
}

Status WeightFolder::CheckUnchanged() const {
  for (const WeightFile& file : files_) MNEME_TRY(file.CheckUnchanged());
  return {};
}

}  // namespace mneme::model
