#include "kernels/kernel_table.h"

#include "kernels/attention.h"
#include "kernels/block_mix.h"
#include "kernels/cpu/blas_core.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/dense.h"
#include "kernels/embed.h"
#include "kernels/gdn.h"
#include "kernels/gemm.h"
#include "kernels/sample.h"

namespace mneme::kernels {
namespace {

// More than any machine has; a larger number is a mistake in a configuration.
constexpr int kThreadsMax = 1024;

Result<std::unique_ptr<Stream>> MakeStream(int threads) {
  if (threads < 1 || threads > kThreadsMax)
    return Fail(ErrorCode::kInvalidArgument, "make stream: {} threads, at most {}", threads,
                kThreadsMax);
  auto stream = std::make_unique<cpu::CpuStream>(threads);
  MNEME_TRY(cpu::TakeBlasBuffers(threads));
  return std::unique_ptr<Stream>(std::move(stream));
}

KernelTable MakeCpuKernels() {
  KernelTable table;
  table.name = "cpu";
  table.make_stream = MakeStream;
  table.pack_weights = cpu::PanelMatrix::Pack;
  table.embed = cpu::Embed;
  table.project_in = cpu::ProjectIn;
  table.gdn_prepare = cpu::GdnPrepare;
  table.route = cpu::Route;
  table.gdn_read = cpu::GdnRead;
  table.attention = cpu::Attention;
  table.block_read = cpu::BlockRead;
  table.block_prefix = cpu::BlockPrefix;
  table.project_out = cpu::ProjectOut;
  table.mlp = cpu::Mlp;
  table.logits_sample = cpu::LogitsSample;
  table.represent = cpu::Represent;
  table.index = cpu::Index;
  table.seal = cpu::Seal;
  table.fold = cpu::Fold;
  table.fold_pages = cpu::FoldPages;
  return table;
}

}  // namespace

const KernelTable& CpuKernels() {
  static const KernelTable table = MakeCpuKernels();
  return table;
}

}  // namespace mneme::kernels
