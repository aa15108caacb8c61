// Stream is the place where a backend runs its ops, one after the other.
//
// On the CPU: a pool of threads and scratch memory per thread; an op is done when its call returns.
// On CUDA: a queue; an op is done when the stream has passed it.
//
// Threads: engine thread only.
#pragma once

namespace mneme::kernels {

class Stream {
 public:
  virtual ~Stream() = default;
};

}  // namespace mneme::kernels
