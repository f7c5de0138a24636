"""Speech for models like Whisper: samples of a WAV file, their log-mel features, and the tokens that ask for a transcript."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any, Callable

import numpy

from model_files import Failure, beside, read_json


def read_wav(path: Path, rate: int) -> numpy.ndarray:
    """Samples in [-1, 1), f32[samples], of a mono file of 16 bits at `rate` Hz."""
    try:
        with wave.open(str(path), "rb") as file:
            channels, bits, found_rate = file.getnchannels(), 8 * file.getsampwidth(), file.getframerate()
            frames = file.readframes(file.getnframes())
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None
    except (wave.Error, EOFError) as error:
        raise Failure(f"{path} is no WAV file of PCM samples: {error or 'it ends early'}") from None
    if (channels, bits, found_rate) != (1, 16, rate):
        raise Failure(f"{path} has {channels} channel(s) of {bits} bits at {found_rate} Hz, and the model takes one of 16 bits at "
                      f"{rate} Hz: convert it, for example with `ffmpeg -i {path} -ac 1 -ar {rate} -c:a pcm_s16le speech.wav`")
    if len(frames) < 2:
        raise Failure(f"{path} has no samples")
    return numpy.frombuffer(frames, "<i2", len(frames) // 2).astype(numpy.float32) / 32768


def mel_of(hertz: Any) -> Any:
    """Slaney's mel scale (Auditory Toolbox, 1998): linear below 1000 Hz, logarithmic above it."""
    hertz = numpy.asarray(hertz, numpy.float64)
    return numpy.where(hertz < 1000, hertz * 3 / 200, 15 + numpy.log(numpy.maximum(hertz, 1000) / 1000) * 27 / numpy.log(6.4))


def hertz_of(mel: Any) -> Any:
    mel = numpy.asarray(mel, numpy.float64)
    return numpy.where(mel < 15, mel * 200 / 3, 1000 * numpy.exp((mel - 15) * numpy.log(6.4) / 27))


def mel_filters(count: int, n_fft: int, rate: int) -> numpy.ndarray:
    """[count, n_fft / 2 + 1]: triangles of equal width in mel, from 0 to 8000 Hz, of equal area."""
    edges = hertz_of(numpy.linspace(mel_of(0.0), mel_of(8000.0), count + 2))[:, None]
    bins = numpy.linspace(0, rate // 2, n_fft // 2 + 1)
    rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    return numpy.maximum(0, numpy.minimum(rising, falling)) * 2 / (edges[2:] - edges[:-2])


class LogMel:
    """The features of transformers' WhisperFeatureExtractor (models/whisper/feature_extraction_whisper.py), of its settings in
    preprocessor_config.json."""

    def __init__(self, file: Path) -> None:
        """`file` is a model with its settings beside it."""
        path, newer = beside(file, "preprocessor_config.json"), beside(file, "processor_config.json")
        if not path.exists() and not newer.exists():
            raise Failure(f"there is no {path}: copy it from the model's page, or export the model with its processor")
        settings = read_json(path) if path.exists() else read_json(newer).get("feature_extractor", {})  # newer: of transformers 5
        kind = settings.get("feature_extractor_type", "WhisperFeatureExtractor")
        if kind != "WhisperFeatureExtractor" or settings.get("do_normalize") or settings.get("dither"):
            raise Failure(f"{path} asks for features of {kind} that this sample does not compute: it has WhisperFeatureExtractor without "
                          "do_normalize and dither")
        self.rate: int = settings.get("sampling_rate", 16000)
        self._n_fft, self._hop = settings.get("n_fft", 400), settings.get("hop_length", 160)
        self.chunk: int = settings.get("chunk_length", 30) * self.rate
        self._window = 0.5 - 0.5 * numpy.cos(2 * numpy.pi * numpy.arange(self._n_fft) / self._n_fft)
        self._filters = mel_filters(settings.get("feature_size", 80), self._n_fft, self.rate)

    def __call__(self, samples: numpy.ndarray) -> numpy.ndarray:
        """f32[mels, chunk / hop] of at most `chunk` samples; silence follows fewer ones."""
        half = self._n_fft // 2
        padded = numpy.pad(numpy.pad(samples, (0, self.chunk - len(samples))), half, mode="reflect")
        frames = numpy.lib.stride_tricks.sliding_window_view(padded, self._n_fft)[::self._hop][:self.chunk // self._hop]
        power = numpy.abs(numpy.fft.rfft(frames * self._window)) ** 2
        log = numpy.log10(numpy.maximum(self._filters @ power.T, 1e-10))
        return ((numpy.maximum(log, log.max() - 8) + 4) / 4).astype(numpy.float32)


def transcript_prompt(settings: dict[str, Any], start: list[int], language: str | None, task: str,
                      logits_after: Callable[[list[int]], numpy.ndarray], timestamps: bool = False) -> list[int]:
    """The tokens before a transcript. generation_config.json has the ids; the model finds the language that is not given."""
    prompt, languages = list(start), settings.get("lang_to_id") or {}
    if languages:
        if language is None:
            logits = logits_after(prompt)
            prompt.append(max(languages.values(), key=lambda token: logits[token]))
        elif f"<|{language}|>" in languages:
            prompt.append(languages[f"<|{language}|>"])
        else:
            raise Failure(f'"lang_to_id" of generation_config.json has no language "{language}": {" ".join(languages)}')
        tasks = settings.get("task_to_id") or {}
        if task not in tasks:
            raise Failure(f'"task_to_id" of generation_config.json has no task "{task}": {" ".join(tasks)}')
        prompt.append(tasks[task])
    elif language is not None or task != "transcribe":
        raise Failure('the model has one language, without "lang_to_id" in its generation_config.json: leave out --language and --task')
    if settings.get("no_timestamps_token_id") is not None and not timestamps:
        prompt.append(settings["no_timestamps_token_id"])
    return prompt
