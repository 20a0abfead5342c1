"""Build a model with random weights, and inputs that fit it. Nothing is downloaded."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import json
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perfml.errors import InputError, MissingExtraError, PerfmlError

from .names import ModelName

CONFIG = "config."
"""Settings that begin so change a field of a transformers configuration."""

_IMAGE = (3, 224, 224)
_VIDEO_FRAMES = 16
_AUDIO_SAMPLES = 16_000


@dataclass(frozen=True)
class Built:
    """A model in fp32 on the CPU, in evaluation mode, with inputs.

    It is called with tensors, or lists of them.
    """

    model: Any
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)


def build(name: ModelName, batch: int, seed: int, settings: Mapping[str, str]) -> Built:
    """Build a model and its inputs; the same for the same arguments.

    Settings are ``input`` (shape of one sample, ``3x224x224``), ``tokens``, and ``config.FIELD``
    for a transformers model.

    Raises `MissingExtraError` if the library is not installed. Raises `PerfmlError` if it has no
    such model, the model cannot be built, or its inputs are not known.
    """
    import numpy as np
    import torch

    os.environ["HF_HUB_OFFLINE"] = "1"  # an outright error where a library would download
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the seed of models that draw from numpy's global state
    torch.manual_seed(seed)
    makers = {
        "torchvision": _torchvision,
        "timm": _timm,
        "transformers": _transformers,
        None: _from_file,
    }
    try:
        built = makers[name.library](name, batch, settings)
    except PerfmlError:
        raise
    except Exception as error:
        # a library's or the user's own code: whatever it raises is why there is no model
        what = "the model cannot be built"
        raised = f"{type(error).__name__}: {error}"
        cure = "Check the name and the settings; log.txt has what was printed."
        raise PerfmlError(what, where=name.name, found=raised, cure=cure) from error
    built.model.eval()
    if name.library is not None:
        _fill_zero_weights(built.model)
    return built


def _fill_zero_weights(model: Any) -> None:
    """Draw the matrices that a library begins with at 0: an output of 0 checks nothing."""
    import torch

    for weight in model.parameters():
        if weight.ndim >= 2 and not bool(weight.detach().any()):
            torch.nn.init.normal_(weight, std=0.02)


def settle_statistics(built: Built) -> None:
    """Let every batch normalisation take the statistics of these inputs, as training would.

    With those it begins with, an untrained deep network shrinks or blows up what goes through it,
    below and above what fp16 can hold. Only for weights drawn at random: what was learnt would be
    gone. Where these inputs have no statistics, the ones that were there stay.
    """
    import torch

    norms: list[Any] = [
        module
        for module in built.model.modules()
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.track_running_stats
    ]
    momenta = [norm.momentum for norm in norms]
    before = [copy.deepcopy(norm.state_dict()) for norm in norms]
    try:
        for norm in norms:
            norm.train()
            norm.momentum = 1.0
        with torch.no_grad():
            built.model(*built.arguments, **built.keywords)
    except Exception:
        # one value a channel has no statistics, and what else is wrong the session tells
        for norm, state in zip(norms, before, strict=True):
            norm.load_state_dict(state)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
            norm.eval()


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(name, "this model", f"pip install {name}") from error


def _shape(settings: Mapping[str, str], default: tuple[int, ...]) -> tuple[int, ...]:
    text = settings["input"]
    if not text:
        return default
    parts = text.split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        what, cure = "the shape of one sample is sizes between x", "Example: --set input=3x224x224."
        raise InputError(what, where="--set input", found=text, cure=cure)
    return tuple(int(part) for part in parts)


def _torchvision(name: ModelName, batch: int, settings: Mapping[str, str]) -> Built:
    import torch

    models = _library("torchvision").models
    if name.name not in models.list_models():
        raise _unknown(name, "torchvision.models.list_models() has the names.")
    builder = models.get_model_builder(name.name)
    without = {"weights": None, "weights_backbone": None}
    taken = inspect.signature(builder).parameters
    model = builder(**{key: None for key in without if key in taken})
    module = builder.__module__
    shape = _shape(settings, _video(models, name.name) if ".video" in module else _IMAGE)
    images = torch.randn(batch, *shape)
    if ".detection" in module:  # takes a list of images, of any sizes
        return Built(model, (list(images.sigmoid()),))
    if ".optical_flow" in module:
        return Built(model, (images, torch.randn(batch, *shape)))
    return Built(model, (images,))


def _video(models: Any, name: str) -> tuple[int, ...]:
    """Return frames of the size that the model's own weights were trained with: 112 or 224."""
    weights = models.get_model_weights(name).DEFAULT
    frames = max(_VIDEO_FRAMES, weights.meta.get("min_temporal_size", 0))
    return (_IMAGE[0], frames, *weights.transforms().crop_size)


def _timm(name: ModelName, batch: int, settings: Mapping[str, str]) -> Built:
    import torch

    timm = _library("timm")
    if not timm.is_model(name.name):
        raise _unknown(name, "timm.list_models() has the names.")
    model = timm.create_model(name.name, pretrained=False)
    own = (getattr(model, "default_cfg", None) or {}).get("input_size", _IMAGE)
    return Built(model, (torch.randn(batch, *_shape(settings, tuple(own))),))


def _transformers(name: ModelName, batch: int, settings: Mapping[str, str]) -> Built:
    transformers = _library("transformers")
    fields = {
        key.removeprefix(CONFIG): _value(text)
        for key, text in settings.items()
        if key.startswith(CONFIG)
    }
    try:
        config = transformers.AutoConfig.for_model(name.name, **fields)
    except ValueError as error:
        raise _unknown(name, "It is a model type, such as distilbert, t5 or llama.") from error
    config.use_cache = False  # outputs are compared, and a cache is no output
    model = transformers.AutoModel.from_config(config)
    return Built(model, (), _transformers_inputs(model, config, batch, settings))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _transformers_inputs(
    model: Any, config: Any, batch: int, settings: Mapping[str, str]
) -> dict[str, Any]:
    import torch

    wanted = model.main_input_name
    if wanted == "pixel_values":
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", _IMAGE[-1])
        height, width = (size, size) if isinstance(size, int) else size
        default = (getattr(vision, "num_channels", _IMAGE[0]), height, width)
        return {wanted: torch.randn(batch, *_shape(settings, default))}
    if wanted == "input_values":
        return {wanted: torch.randn(batch, *_shape(settings, (_AUDIO_SAMPLES,)))}
    if wanted != "input_ids":
        what = "perfml does not know what this model takes"
        cure = "Write a function that returns (model, inputs): torch:FILE.py:FUNCTION."
        raise PerfmlError(what, where=config.model_type, found=wanted, cure=cure)
    text = settings["tokens"]
    if not text.isdecimal() or int(text) < 1:
        what = "a sequence has at least one token"
        raise InputError(what, where="--set tokens", found=text)
    vocabulary = getattr(config, "vocab_size", None)
    if vocabulary is None:
        vocabulary = config.get_text_config().vocab_size
    inputs = {wanted: torch.randint(vocabulary, (batch, int(text)))}
    if getattr(config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = torch.randint(vocabulary, (batch, int(text)))
    return inputs


def _from_file(name: ModelName, batch: int, settings: Mapping[str, str]) -> Built:
    import torch

    assert name.file is not None
    spec = importlib.util.spec_from_file_location(f"perfml_user_{name.file.stem}", name.file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name.name, None)
    if not callable(function):
        what, cure = "the file has no such function", "Check its name."
        raise InputError(what, where=str(name.file), found=name.name, cure=cure)
    takes_batch = "batch" in inspect.signature(function).parameters
    made = function(batch=batch) if takes_batch else function()
    model, inputs = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(model, torch.nn.Module):
        what = "the function must return a torch.nn.Module, or a pair of it and its inputs"
        raise InputError(what, where=f"{name.file}:{name.name}", found=type(model).__name__)
    if inputs is None:
        return Built(model, (torch.randn(batch, *_shape(settings, _IMAGE)),))
    if isinstance(inputs, Mapping):
        return Built(model, (), inputs)
    return Built(model, tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,))


def _unknown(name: ModelName, cure: str) -> PerfmlError:
    return InputError(
        f"{name.library} has no such model", where="WORKLOAD", found=name.name, cure=cure
    )
