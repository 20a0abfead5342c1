"""An option of collect stands in one place: command line, sweep and run.json follow."""

import dataclasses
import inspect

import pytest

from collectors.settings import OPTIONS as SETTINGS
from collectors.settings import Settings
from collectors.sweep.options import OPTIONS as SWEPT
from perfml.cli import app
from perfml.errors import InputError


def test_every_option_is_one_of_the_command_line_with_its_default():
    commands = {each.callback.__name__: each.callback for each in app.registered_commands}
    parameters = inspect.signature(commands["collect"]).parameters
    assert "layer" in parameters
    for name in SETTINGS.keys() - {"layers"}:
        assert parameters[name].default == getattr(Settings, name)


def test_every_option_may_vary_in_a_sweep_and_is_checked_there():
    for name, option in SETTINGS.items():
        default = getattr(Settings, name)
        assert default is None or SWEPT[name](default) == default
        for wrong in [[], *(["no choice"] if option.choices else [])]:
            with pytest.raises(ValueError, match=r"\w"):
                SWEPT[name](wrong)
        if option.least is not None:
            with pytest.raises(ValueError, match=str(option.least)):
                SWEPT[name](option.least - 1)


def test_every_option_is_written_down():
    assert set(SETTINGS) <= set(Settings().as_dict())


@pytest.mark.parametrize("name", [name for name, option in SETTINGS.items() if option.choices])
def test_a_word_that_is_no_choice_is_refused_with_the_choices(name):
    with pytest.raises(InputError, match=SETTINGS[name].choices[-1]):
        Settings(**{name: "other"})


def test_an_option_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match="iteration"):
        dataclasses.replace(Settings(), iteration=3)
