// What WeightFile takes and refuses, against files written by hand from the format's grammar. Every
// refusal must name file, tensor, what was expected and what was found.
#include "model/weight_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/model/checkpoint_files.h"

namespace mneme::model {
namespace {

using support::FileOf;
using support::ScratchFolder;
using ::testing::HasSubstr;

constexpr std::string_view kName = "w.safetensors";

// The error of opening a file of that header and so many tensor bytes.
Error Refusal(const std::string& header, size_t tensor_bytes) {
  const ScratchFolder folder;
  auto file = WeightFile::Open(folder.Write(kName, FileOf(header, std::string(tensor_bytes, 1))));
  if (file) {
    ADD_FAILURE() << "accepted: " << header;
    return Error(ErrorCode::kInternal, "accepted");
  }
  return std::move(file).error();
}

void ExpectRefusal(const Error& error, ErrorCode code, std::string_view tensor,
                   std::string_view expected, std::string_view found) {
  EXPECT_EQ(error.code(), code) << error.message();
  EXPECT_THAT(error.message(), HasSubstr(std::string(kName) + ": tensor " + std::string(tensor)));
  EXPECT_THAT(error.message(), HasSubstr("expected " + std::string(expected)));
  EXPECT_THAT(error.message(), HasSubstr("found " + std::string(found)));
}

std::string Entry(std::string_view name, std::string_view shape, std::string_view offsets,
                  std::string_view dtype = "F32") {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                     offsets);
}

TEST(WeightFileTest, FindsTensorsByNameWithShapeTypeAndBytes) {
  const ScratchFolder folder;
  const std::string header = "{" + Entry("b", "[2]", "[8,12]", "BF16") + "," +
                             R"("__metadata__":{"format":"pt","note":"a\u00e9"},)" +
                             Entry("a", "[2,1]", "[0,8]") + "," + Entry("none", "[0,3]", "[8,8]") +
                             "}   ";
  auto file = WeightFile::Open(folder.Write(kName, FileOf(header, "0123456789ab")));
  ASSERT_TRUE(file) << file.error().message();
  ASSERT_EQ(file->tensors().size(), 3u);
  const StoredTensor* a = file->Find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->ShapeText(), "[2, 1]");
  EXPECT_EQ(AsText(a->bytes), "01234567");
  EXPECT_EQ(a->kernel_dtype(), kernels::Dtype::kF32);
  EXPECT_EQ(AsText(file->Find("b")->bytes), "89ab");
  EXPECT_EQ(file->Find("b")->kernel_dtype(), kernels::Dtype::kBf16);
  EXPECT_EQ(file->Find("none")->bytes.size(), 0u);
  EXPECT_EQ(file->Find("c"), nullptr);
  EXPECT_EQ(file->metadata().at("note"), "a\u00e9");
  EXPECT_EQ(file->bytes().size(), 8 + header.size() + 12);
  EXPECT_TRUE(file->CheckUnchanged());
}

// The numbers of 5,000 of each type are ones but for one; 5,000 is more than is looked at at once.
TEST(WeightFileTest, FindsTheNumberThatIsNotFinite) {
  struct Case {
    const char* dtype;
    std::string one;
    std::vector<std::string> bad;
    std::vector<std::string> good;
  };
  const std::vector<Case> cases = {
      {"F32",
       std::string("\0\0\x80\x3f", 4),
       {std::string("\0\0\x80\x7f", 4), std::string("\0\0\xc0\xff", 4)},
       {std::string("\xff\xff\x7f\x7f", 4), std::string("\1\0\0\x80", 4)}},
      {"BF16",
       std::string("\x80\x3f", 2),
       {std::string("\x80\xff", 2), std::string("\xc0\x7f", 2)},
       {std::string("\x7f\x7f", 2), std::string("\x00\x7c", 2)}},
      {"F16",
       std::string("\x00\x3c", 2),
       {std::string("\x00\x7c", 2), std::string("\x01\xfc", 2)},
       {std::string("\xff\x7b", 2), std::string("\x01\x00", 2)}},
  };
  const ScratchFolder folder;
  for (const Case& one : cases) {
    const size_t size = one.one.size();
    const auto check = [&](size_t at, const std::string& number) {
      std::string bytes(3, 'x');  // so that the numbers are not aligned
      for (int i = 0; i < 5000; ++i) bytes += one.one;
      bytes.replace(3 + at * size, size, number);
      const std::string header =
          "{" + Entry("a", "[3]", "[0,3]", "U8") + "," +
          Entry("b", "[50,100]", fmt::format("[3,{}]", bytes.size()), one.dtype) + "}";
      return WeightFile::Open(folder.Write(kName, FileOf(header, bytes)))->CheckFinite();
    };
    for (const size_t at : {0, 4095, 4096, 4999}) {
      for (const std::string& good : one.good) EXPECT_TRUE(check(at, good)) << one.dtype;
      for (const std::string& bad : one.bad) {
        const Status status = check(at, bad);
        ASSERT_FALSE(status) << one.dtype << " at " << at;
        EXPECT_EQ(status.error().code(), ErrorCode::kCorruption);
        EXPECT_EQ(status.error().message(),
                  fmt::format("w.safetensors: tensor b: expected finite numbers, found one that is "
                              "not at {} of 5000",
                              at));
      }
    }
  }
}

TEST(WeightFileTest, KnowsTypesItDoesNotUseAndTellsThemApart) {
  const ScratchFolder folder;
  const std::string header =
      "{" + Entry("x", "[3]", "[0,3]", "F8_E4M3") + "," + Entry("y", "[1]", "[3,11]", "I64") + "}";
  auto file = WeightFile::Open(folder.Write(kName, FileOf(header, std::string(11, 0))));
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(file->Find("x")->kernel_dtype(), std::nullopt);
  EXPECT_EQ(NameOf(file->Find("y")->dtype), "I64");
}

TEST(WeightFileTest, RefusesAMissingFileAPipeAndAnEmptyFile) {
  const ScratchFolder folder;
  EXPECT_EQ(WeightFile::Open(folder.path() / kName).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(WeightFile::Open(folder.path()).error().code(), ErrorCode::kInvalidArgument);
  ASSERT_EQ(mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(WeightFile::Open(folder.path() / "pipe").error().message(),
              HasSubstr("expected a regular file"));
  EXPECT_THAT(WeightFile::Open(folder.Write(kName, "")).error().message(), HasSubstr("found 0"));
}

TEST(WeightFileTest, RefusesAHeaderThatIsCutShortOrTooLong) {
  const ScratchFolder folder;
  ExpectRefusal(WeightFile::Open(folder.Write(kName, "1234567")).error(), ErrorCode::kCorruption,
                "(header)", "at least 8 bytes", "7");
  ExpectRefusal(WeightFile::Open(folder.Write(kName, support::LittleEndian(3) + "{}")).error(),
                ErrorCode::kCorruption, "(header)", "3 bytes of header", "2 left");
  const std::string huge = support::LittleEndian(kHeaderBytesMax + 1) + "{}";
  ExpectRefusal(WeightFile::Open(folder.Write(kName, huge)).error(), ErrorCode::kInvalidArgument,
                "(header)", "at most 16777216", "16777217");
  const std::string all_ones = std::string(8, '\xff') + "{}";
  ExpectRefusal(WeightFile::Open(folder.Write(kName, all_ones)).error(),
                ErrorCode::kInvalidArgument, "(header)", "at most 16777216",
                "18446744073709551615");
}

TEST(WeightFileTest, RefusesAHeaderOfAnotherForm) {
  const struct {
    std::string header;
    std::string tensor, expected, found;
  } cases[] = {
      {"", "(header)", "JSON", "at byte"},
      {"[]", "(header)", "an object", "an array"},
      {"{", "(header)", "JSON", "at byte 1"},
      {"{} {}", "(header)", "one JSON object", "text behind it"},
      {"{\"a\":1}", "a", "an object", "1"},
      {"{\"a\":[]}", "a", "an object", "an array"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", "a", "data_offsets", "none"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", "a", "a shape", "none"},
      {R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "a", "a dtype", "none"},
      {"{" + Entry("a", "[1]", "[0]") + "}", "a", "data_offsets", "none"},
      {"{" + Entry("a", "[1]", "[0,4,8]") + "}", "a", "two data_offsets", "more"},
      {"{" + Entry("a", "[1.0]", "[0,4]") + "}", "a", "shape to be integers", "1.0"},
      {"{" + Entry("a", "[1e0]", "[0,4]") + "}", "a", "shape to be integers", "1e0"},
      {"{" + Entry("a", "[-1]", "[0,4]") + "}", "a", "shape to be integers", "-1"},
      {"{" + Entry("a", "[\"1\"]", "[0,4]") + "}", "a", "shape to be integers", "a string"},
      {"{" + Entry("a", "[true]", "[0,4]") + "}", "a", "shape to be integers", "a truth value"},
      {"{" + Entry("a", "[[1]]", "[0,4]") + "}", "a", "shape to be integers", "an array"},
      {"{" + Entry("a", "null", "[0,4]") + "}", "a", "shape to be an array", "null"},
      {"{" + Entry("a", "[1]", "[0,18446744073709551616]") + "}", "a", "data_offsets to be",
       "18446744073709551616"},
      {"{" + Entry("a", "[1]", "[0,4]", "F99") + "}", "a", "a dtype this build knows", "F99"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", "a", "dtype, shape and",
       "x"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "a", "dtype once",
       "it twice"},
      {"{" + Entry("a", "[1]", "[0,4]") + "," + Entry("a", "[1]", "[4,8]") + "}", "a",
       "each name once", "it twice"},
      {R"({"__metadata__":{"k":1}})", "__metadata__", "a string", "1"},
      {R"({"__metadata__":{"k":"","k":""}})", "__metadata__", "each key once", "k twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", "__metadata__", "this once", "it twice"},
      {"{" + Entry("", "[1]", "[0,4]") + "}", "(empty)", "a name", "none"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.header);
    ExpectRefusal(Refusal(c.header, 4), ErrorCode::kCorruption, c.tensor, c.expected, c.found);
  }
}

TEST(WeightFileTest, RefusesRangesThatDoNotFitTheFile) {
  const struct {
    std::string header;
    std::string tensor, expected, found;
  } cases[] = {
      {"{" + Entry("a", "[3]", "[0,12]") + "}", "a", "a range within 8", "[0, 12)"},
      {"{" + Entry("a", "[0]", "[4,0]") + "}", "a", "a range within 8", "[4, 0)"},
      {"{" + Entry("a", "[1]", "[0,8]") + "}", "a", "4 bytes for F32 of [1]", "a range of 8"},
      {"{" + Entry("a", "[4294967296,4294967296]", "[0,8]") + "}", "a", "a size below 2^64",
       "F32 of [4294967296, 4294967296]"},
      {"{" + Entry("a", "[1]", "[4,8]") + "}", "a", "to begin at byte 0", "4: ranges leave a gap"},
      {"{" + Entry("a", "[2]", "[0,8]") + "," + Entry("b", "[1]", "[4,8]") + "}", "b",
       "to begin at byte 8", "4: ranges overlap"},
      {"{" + Entry("a", "[1]", "[0,4]") + "}", "(end of file)", "4 bytes of tensors", "8"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.header);
    ExpectRefusal(Refusal(c.header, 8), ErrorCode::kCorruption, c.tensor, c.expected, c.found);
  }
}

TEST(WeightFileTest, RefusesWhatPassesALimit) {
  ExpectRefusal(Refusal("{" + Entry("a", "[1,1,1,1,1,1,1,1,1]", "[0,4]") + "}", 4),
                ErrorCode::kInvalidArgument, "a", "at most 8 dimensions", "more");
  const std::string name(kTensorNameBytesMax + 1, 'n');
  ExpectRefusal(Refusal("{" + Entry(name, "[1]", "[0,4]") + "}", 4), ErrorCode::kInvalidArgument,
                "nnn", "a name of at most 512 bytes", "513");
  std::string many = "{";
  for (size_t i = 0; i <= kTensorsMax; ++i)
    many += (i == 0 ? "" : ",") + Entry(std::to_string(i), "[0]", "[0,0]", "U8");
  ExpectRefusal(Refusal(many + "}", 0), ErrorCode::kInvalidArgument, "65536",
                "at most 65536 tensors", "more");
  const std::string longest(kTensorNameBytesMax, 'n');
  const ScratchFolder folder;
  const std::string header = "{" + Entry(longest, "[1,1,1,1,1,1,1,1]", "[0,4]") + "}";
  EXPECT_TRUE(WeightFile::Open(folder.Write(kName, FileOf(header, "1234"))));
}

TEST(WeightFileTest, NeverPrintsWhatATerminalWouldObey) {
  const Error error = Refusal(R"({"\u001b[2Jx":1})", 0);
  EXPECT_EQ(error.message().find('\x1b'), std::string::npos) << error.message();
  EXPECT_THAT(error.message(), HasSubstr("?[2Jx"));
}

TEST(WeightFileTest, NoticesAFileThatChangedSizeAfterMapping) {
  const ScratchFolder folder;
  const auto path = folder.Write(kName, FileOf("{" + Entry("a", "[1]", "[0,4]") + "}", "1234"));
  auto file = WeightFile::Open(path);
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->CheckUnchanged());
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 1);
  const Status changed = file->CheckUnchanged();
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().code(), ErrorCode::kCorruption);
  EXPECT_THAT(changed.error().message(),
              HasSubstr(fmt::format("expected {} bytes, found {}", size, size - 1)));
}

}  // namespace
}  // namespace mneme::model
