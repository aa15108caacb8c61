// FileDescriptor owns one open file of the operating system and closes it once.
#pragma once

#include <unistd.h>

#include <utility>

namespace mneme::memory {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      Close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  ~FileDescriptor() { Close(); }

  int number() const { return number_; }
  bool open() const { return number_ >= 0; }

 private:
  void Close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }

  int number_ = -1;  // -1: none
};

}  // namespace mneme::memory
