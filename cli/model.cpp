// mneme model: what a checkpoint folder holds and needs, without loading it; and whether it is
// whole and computes, by loading it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <string>

#include "base/bytes.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/local_model.h"
#include "cli/terminal.h"
#include "kernels/block_mix.h"
#include "model/mhla_folder.h"
#include "model/model_check.h"
#include "model/model_folder.h"

namespace mneme::cli {
namespace {

constexpr char kFooter[] = R"(
examples:
  mneme model inspect checkpoints/demo
  mneme model inspect ~/models/Qwen3.5-0.8B --host-mib 8192 --json

inspect reads the headers only; nothing is loaded.)";

constexpr char kCheckFooter[] = R"(
examples:
  mneme model check checkpoints/demo
  mneme model check ~/models/HLA-1.3B --reader native --json

Loads the model: every number is looked at, and a few hundred tokens are computed as a prompt and
one by one, which must agree. Exit 0: all of it passed.)";

struct InspectCommand {
  std::string folder;
  std::string page_dtype = "f16";
  uint64_t host_mib_max = StandardHostMib();
  bool json = false;
};

constexpr memory::Reader kReaders[] = {memory::Reader::kHla, memory::Reader::kMhla,
                                       memory::Reader::kNative};

boost::json::object ToJson(const model::ReaderNeeds& needs, uint64_t cap_bytes) {
  boost::json::object reader = {{"offered", needs.offered},
                                {"bytes_per_token", needs.history_bytes_per_token()},
                                {"kv_bytes_per_token", needs.kv_bytes_per_token()},
                                {"page_bytes_per_chunk", needs.page_bytes},
                                {"representative_bytes_per_chunk", needs.representative_bytes},
                                {"index_bytes_per_chunk", needs.index_bytes},
                                {"session_bytes", needs.session_bytes()},
                                {"disk_bytes_per_token", needs.disk_bytes_per_token()},
                                {"rung_bytes", needs.rung_bytes}};
  const auto tokens = needs.TokensWithin(cap_bytes);
  reader["tokens_within_cap"] = tokens ? boost::json::value(*tokens) : boost::json::value();
  return reader;
}

// A folder without one runs on ids in `mneme run` and cannot be served.
bool HasTokenizer(const InspectCommand& command) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::path(command.folder) / "tokenizer.json", ignored);
}

void PrintJson(const model::ModelFolder& folder, const model::MemoryNeeds& needs,
               const InspectCommand& command) {
  const model::ModelConfig& config = folder.config();
  boost::json::object readers;
  for (const memory::Reader reader : kReaders)
    readers[memory::NameOf(reader)] = ToJson(needs.For(reader), command.host_mib_max * kMiB);
  const boost::json::object reply = {
      {"folder", command.folder},
      {"layout", model::NameOf(config.layout)},
      {"tokenizer", HasTokenizer(command)},
      {"parameters", folder.weights().parameters + folder.router().router_parameters()},
      {"router_parameters", folder.router().router_parameters()},
      {"mixing_parameters", folder.router().mixing_parameters()},
      {"stored_bytes", needs.stored_bytes},
      {"memory_bytes", needs.weights_bytes + needs.workspace_bytes},
      {"hidden", config.hidden},
      {"linear_layers", config.linear_layers()},
      {"attention_layers", config.attention_layers()},
      {"vocab", config.vocab},
      {"positions_max", config.positions_max},
      {"tied", config.tied},
      {"skipped_tensors", folder.weights().skipped_tensors},
      {"default_reader", memory::NameOf(folder.router().default_reader())},
      {"theta", folder.router().theta()},
      {"pages_max", folder.router().pages_max()},
      {"host_bytes_max", command.host_mib_max * kMiB},
      {"readers", readers}};
  fmt::print("{}\n", boost::json::serialize(reply));
}

void PrintText(const model::ModelFolder& folder, const model::MemoryNeeds& needs,
               const InspectCommand& command) {
  const model::ModelConfig& config = folder.config();
  fmt::print("{}\n", command.folder);
  const auto beside = [](const char* what, uint64_t parameters) {
    return parameters > 0 ? fmt::format(", {} {}", what, Count(parameters)) : std::string();
  };
  fmt::print("  {} parameters in {}{}{} ({} tensors of other parts skipped)\n",
             Count(folder.weights().parameters), Bytes(needs.stored_bytes),
             beside("router", folder.router().router_parameters()),
             beside("static mixing", folder.router().mixing_parameters()),
             folder.weights().skipped_tensors);
  fmt::print("  {} layers: {} gated delta, {} full attention; width {}, vocabulary {}{}\n",
             config.layer_count(), config.linear_layers(), config.attention_layers(), config.hidden,
             Count(static_cast<uint64_t>(config.vocab)), config.tied ? ", tied" : "");
  fmt::print("  in memory: {} of weights, {} of workspace\n", Bytes(needs.weights_bytes),
             Bytes(needs.workspace_bytes));
  if (config.layout == model::ModelLayout::kHla)
    fmt::print("  in the layout of the released HLA-1.3B: no convolution, no positions{}\n",
               config.router ? ", its own router" : "");
  if (!HasTokenizer(command))
    fmt::print(
        "  no tokenizer.json: it reads and writes ids (mneme run --ids) and is not served\n");
  if (folder.router().Offers(memory::Reader::kMhla)) {
    fmt::print("  mixing.safetensors: --reader mhla reads history through it\n");
  } else if (!folder.router().has_router()) {
    fmt::print("  no router.safetensors: history is read natively, folded into one state\n");
  }
  const memory::Reader chosen = folder.router().default_reader();
  fmt::print("\n  {:<8} {:>16} {:>16} {:>16} {:>22}\n", "READER", "BYTES PER TOKEN",
             "INDEX PER CHUNK", "OPEN SESSION", "TOKENS IN " + Bytes(command.host_mib_max * kMiB));
  for (const memory::Reader reader : kReaders) {
    const model::ReaderNeeds& own = needs.For(reader);
    if (!own.offered) continue;
    const auto tokens = own.TokensWithin(command.host_mib_max * kMiB);
    fmt::print("  {:<8} {:>16.0f} {:>16} {:>16} {:>22}{}\n", memory::NameOf(reader),
               own.history_bytes_per_token(), Bytes(own.representative_bytes + own.index_bytes),
               Bytes(own.session_bytes()), tokens ? Count(*tokens) : "any length",
               reader == chosen ? "  (default)" : "");
  }
  fmt::print("\n");
  for (const memory::Reader reader : kReaders) {
    const model::ReaderNeeds& own = needs.For(reader);
    if (!own.offered) continue;
    fmt::print("  on disk, {}: {:.0f} bytes a token", memory::NameOf(reader),
               own.disk_bytes_per_token());
    if (own.rung_bytes > 0)
      fmt::print(" and {} for each of a few dozen chunks to start from", Bytes(own.rung_bytes));
    fmt::print("\n");
  }
}

void PrintMhlaJson(const model::MhlaFolder& folder, const InspectCommand& command) {
  const model::MhlaConfig& config = folder.config();
  const model::MhlaNeeds needs = folder.Needs();
  const boost::json::object reply = {{"folder", command.folder},
                                     {"layout", "mhla"},
                                     {"parameters", folder.weights().parameters},
                                     {"stored_bytes", folder.weights().stored_bytes},
                                     {"memory_bytes", needs.weights_bytes},
                                     {"hidden", config.hidden},
                                     {"layers", config.layers},
                                     {"heads", config.heads},
                                     {"key_dim", config.key_dim},
                                     {"value_dim", config.value_dim},
                                     {"vocab", config.vocab},
                                     {"tied", config.tied},
                                     {"skipped_tensors", folder.weights().skipped_tensors},
                                     {"block_tokens", kernels::kMixBlockTokens},
                                     {"matrix_blocks", model::kMhlaMatrixBlocks},
                                     {"block_bytes", needs.block_bytes},
                                     {"session_bytes_max", needs.session_bytes_max},
                                     {"tokenizer", folder.has_tokenizer()},
                                     {"served", false}};
  fmt::print("{}\n", boost::json::serialize(reply));
}

void PrintMhlaText(const model::MhlaFolder& folder, const InspectCommand& command) {
  const model::MhlaConfig& config = folder.config();
  const model::MhlaNeeds needs = folder.Needs();
  fmt::print("{}\n", command.folder);
  fmt::print("  an MHLA language model: {} parameters in {} ({} tensors of other parts skipped)\n",
             Count(folder.weights().parameters), Bytes(folder.weights().stored_bytes),
             folder.weights().skipped_tensors);
  fmt::print("  {} layers: {} heads of {} x {}, width {}, MLP {}, vocabulary {}{}\n", config.layers,
             config.heads, config.key_dim, config.value_dim, config.hidden, config.intermediate,
             Count(static_cast<uint64_t>(config.vocab)), config.tied ? ", tied" : "");
  fmt::print("  in memory: {} of weights; a session {} a block of {} tokens, at most {}\n",
             Bytes(needs.weights_bytes), Bytes(needs.block_bytes), kernels::kMixBlockTokens,
             Bytes(needs.session_bytes_max));
  fmt::print(
      "  the mixing matrix knows {} blocks, {} tokens; beyond them its last row serves by "
      "distance\n",
      model::kMhlaMatrixBlocks,
      Count(uint64_t{model::kMhlaMatrixBlocks} * uint64_t{kernels::kMixBlockTokens}));
  if (!folder.has_tokenizer())
    fmt::print("  no tokenizer.json: it reads and writes ids (mneme run --ids)\n");
  fmt::print("  mneme run reads it; it is not served\n");
}

Status InspectMhla(const InspectCommand& command) {
  const auto folder = model::MhlaFolder::Open(command.folder);
  MNEME_TRY(folder);
  (command.json ? PrintMhlaJson : PrintMhlaText)(*folder, command);
  return {};
}

Status Inspect(const InspectCommand& command) {
  const auto mhla = model::IsMhlaFolder(command.folder);
  MNEME_TRY(mhla);
  if (*mhla) return InspectMhla(command);
  const auto folder = model::ModelFolder::Open(command.folder);
  MNEME_TRY(folder);
  const model::MemoryNeeds needs = model::MemoryNeeds::Of(
      folder->config(), folder->weights(), folder->router(),
      command.page_dtype == "f32" ? kernels::Dtype::kF32 : kernels::Dtype::kF16);
  (command.json ? PrintJson : PrintText)(*folder, needs, command);
  return {};
}

struct CheckCommand {
  std::string folder;
  std::string reader;
  std::string page_dtype = "f16";
  int threads = 0;
  bool json = false;
};

Status Check(const CheckCommand& command) {
  model::ModelCheckOptions options;
  options.reader = command.reader;
  options.page_dtype = command.page_dtype == "f32" ? kernels::Dtype::kF32 : kernels::Dtype::kF16;
  LocalModelChoice choice;
  choice.threads = command.threads;
  options.threads = ThreadsOf(choice);
  options.host_bytes_max = choice.host_mib_max * kMiB;
  boost::json::object parts;
  const Status status =
      model::CheckModel(command.folder, options, [&](const model::ModelCheckPart& part) {
        if (command.json) {
          parts[part.name] = part.found;
        } else {
          fmt::print("{:<10} {}\n", part.name, part.found);
        }
      });
  MNEME_TRY(status);
  if (command.json)
    fmt::print("{}\n", boost::json::serialize(boost::json::object{
                           {"folder", command.folder}, {"passed", true}, {"parts", parts}}));
  return {};
}

}  // namespace

int RunModel(int argc, char** argv) {
  InspectCommand command;
  CLI::App app("Shows what a model folder holds, or checks it.", "mneme model");
  app.footer(kFooter);
  app.require_subcommand(1);
  CLI::App* inspect =
      app.add_subcommand("inspect", "sizes, readers, and how much history fits in memory");
  inspect->footer(kFooter);
  inspect->add_option("folder", command.folder, "the model folder")->required();
  inspect->add_option("--page-dtype", command.page_dtype, "type of pages in memory")
      ->check(CLI::IsMember({"f16", "f32"}))
      ->capture_default_str();
  AddHostMibOption(*inspect, command.host_mib_max);
  inspect->add_flag("--json", command.json, "one JSON object instead of text");
  CheckCommand check_command;
  CLI::App* check = app.add_subcommand("check", "loads everything and computes a few tokens twice");
  check->footer(kCheckFooter);
  check->add_option("folder", check_command.folder, "the model folder")->required();
  check->add_option("--reader", check_command.reader,
                    "hla, mhla or native (default: as the folder is served)");
  check->add_option("--page-dtype", check_command.page_dtype, "type of pages in memory")
      ->check(CLI::IsMember({"f16", "f32"}))
      ->capture_default_str();
  check->add_option("--threads", check_command.threads, "threads; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  check->add_flag("--json", check_command.json, "one JSON object instead of text");
  if (const int exit = ParseCommandLine(app, argc, argv); exit >= 0) return exit;
  if (check->parsed()) {
    const Status status = Check(check_command);
    return status ? kExitOk : Complain("model check", status.error(), check_command.json);
  }
  if (const Status status = Inspect(command); !status)
    return Complain("model inspect", status.error(), command.json);
  return kExitOk;
}

}  // namespace mneme::cli
