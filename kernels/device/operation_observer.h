#pragma once

#include <exception>
#include <string>

namespace sluice {

/// Learns of the operations of a device as they end, one by one.
class OperationObserver {
 public:
  virtual ~OperationObserver() = default;
  /// An operation begins, in none that has begun.
  virtual void begin() = 0;
  /// It has been told to the device, which may still be at it. `name` is what `Device::observe` lists.
  virtual void end(const std::string& name) = 0;
};

/// Where observers of a device are told. Of operations that others are made of only the outermost is.
class ObservedOperations {
 public:
  /// From now on `observer` (null: nobody) is told. Operations are named as functions are, products with their sizes
  /// ("matmul 1024 x 2048"), and those that a device does as one by what they are ("layer_chain", "decode_mlp").
  void observe(OperationObserver* observer) { observer_ = observer; }
  bool is_observed() const { return observer_ != nullptr; }

 protected:
  /// Lasts as long as an operation.
  class Operation {
   public:
    /// `name` gives its name, which is asked for only where somebody wants to know.
    template <typename Name>
    Operation(ObservedOperations& operations, const Name& name)
        : operations_(operations),
          outermost_(operations.observer_ != nullptr && operations.depth_ == 0),
          exceptions_(std::uncaught_exceptions()) {
      if (outermost_) {
        name_ = name();
        operations.observer_->begin();
      }
      counted_ = operations.observer_ != nullptr;
      if (counted_) ++operations.depth_;
    }
    /// Throws what the observer throws. An operation that failed did not end: nobody is told.
    ~Operation() noexcept(false) {
      if (!counted_) return;
      --operations_.depth_;
      if (!outermost_ || operations_.observer_ == nullptr || std::uncaught_exceptions() > exceptions_) return;
      operations_.observer_->end(name_);
    }
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

   private:
    ObservedOperations& operations_;
    bool outermost_;
    int exceptions_;
    bool counted_ = false;
    std::string name_;
  };

  /// [[nodiscard]]: what is told ends with what this returns.
  [[nodiscard]] Operation operation(const char* name) {
    return {*this, [name] { return std::string(name); }};
  }

 private:
  OperationObserver* observer_ = nullptr;
  int depth_ = 0;
};

}  // namespace sluice
