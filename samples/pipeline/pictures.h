// Pictures for a trial without data: JPEG files in a temporary folder.
#pragma once
#include <filesystem>

class MadePictures {
 public:
  // Throws std::runtime_error if they cannot be written.
  MadePictures(int count, int width, int height);
  ~MadePictures();
  MadePictures(const MadePictures&) = delete;
  MadePictures& operator=(const MadePictures&) = delete;
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};
