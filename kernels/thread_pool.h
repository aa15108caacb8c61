// ThreadPool runs the pieces of one parallel loop on a fixed number of threads.
//
// Every thread begins with its own stretch of the pieces, the same in every loop of so many, so
// that it finds in its caches what it read there the last time: cores may share none of them. Then
// it helps the others, so a loop body must give the same bits whoever runs it: pieces are cut by
// the work's own sizes, never by the number of threads.
//
// Owns:     threads - 1 workers; the caller is the remaining one. Workers spin for a moment after a
//           loop, because a decode step is dozens of loops of a few microseconds, then sleep.
// Threads:  Run from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace mneme::kernels {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls body(piece, thread) once for every piece in [0, pieces), thread in [0, threads), and
  // returns when all are done.
  void Run(int64_t pieces, const std::function<void(int64_t piece, int thread)>& body);

  int threads() const;

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace mneme::kernels
