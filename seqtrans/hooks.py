"""The five hooks that offer everything with a name: a plug-in author's first page.

A plug-in is a module that an entry point of the group ``seqtrans`` names. It defines one or more of
the functions below, each marked with ``@hookimpl`` and giving a list of `Component` records::

    @hookimpl
    def seqtrans_positions() -> list[Component]:
        return [Component(name="slopes", build=lambda settings, shape: Slopes(shape.heads))]
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pluggy

from seqtrans.downloads import Download
from seqtrans.errors import PluginError
from seqtrans.settings import NoSettings, Settings

hookspec = pluggy.HookspecMarker("seqtrans")
hookimpl = pluggy.HookimplMarker("seqtrans")

NAME = re.compile(r"[a-z0-9]+([-_.][a-z0-9]+)*")
REFERENCE = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*")


@dataclass(frozen=True, kw_only=True)
class Component:
    """Something that can be chosen by name.

    Its own settings are typed after its group: ``decoder=beam decoder.width=8``. What is not chosen
    is not built and, where ``build`` is written as text, not even imported: a plug-in whose hooks
    stand in a module of their own, without torch, costs nothing at start-up.
    """

    name: str
    """As typed after ``task=``, …: lower-case letters and digits, joined by - or _ or a dot."""

    build: Callable[..., Any] | str
    """Makes the object; each hook says from what. Or where it is, as ``"module:attribute"``."""

    settings: type[Settings] = NoSettings
    """The class of the settings that ``build`` is given; a field may not be called ``name``."""

    summary: str = ""
    """One line for ``seqtrans plugins``."""

    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What a task wants of the other groups where the user says nothing, such as
    ``{"source": {"name": "spectrogram"}, "decoder": {"name": "beam", "width": 21}}``. Those of a
    group hold only as long as the user chooses no other name for it."""

    downloads: Mapping[str, Download | str] = field(default_factory=dict)
    """What ``seqtrans fetch NAME`` can get for it, by name, each a `seqtrans.downloads.Download` or
    where one is, as ``"module:attribute"``. Nothing is fetched unless a user asks for it."""

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and NAME.fullmatch(self.name)):
            raise ValueError(
                f"a component's name is lower-case letters and digits, joined by '-', '_' or '.', "
                f"not {self.name!r}"
            )
        if isinstance(self.build, str) and not REFERENCE.fullmatch(self.build):
            raise ValueError(
                f"{self.name}: build is a callable or 'module:attribute', not {self.build!r}"
            )
        if not (isinstance(self.build, str) or callable(self.build)):
            raise TypeError(
                f"{self.name}: build is a callable or 'module:attribute', not {self.build!r}"
            )
        if not (isinstance(self.settings, type) and issubclass(self.settings, Settings)):
            raise TypeError(
                f"{self.name}: settings is a subclass of seqtrans.settings.Settings, "
                f"not {self.settings!r}"
            )
        if "name" in self.settings.model_fields:
            raise TypeError(
                f"{self.name}: a setting cannot be called 'name', by which the component is chosen"
            )
        for name, download in self.downloads.items():
            if not (isinstance(name, str) and NAME.fullmatch(name)):
                raise ValueError(
                    f"{self.name}: a download's name is lower-case letters and digits, joined by "
                    f"'-', '_' or '.', not {name!r}"
                )
            text = isinstance(download, str) and REFERENCE.fullmatch(download)
            if not (text or isinstance(download, Download)):
                raise TypeError(
                    f"{self.name}: the download {name!r} is a seqtrans.downloads.Download or "
                    f"'module:attribute', not {download!r:.80}"
                )

    def load(self) -> Callable[..., Any]:
        """``build``, imported now if it is written as text.

        Raises ``PluginError`` if what it names cannot be imported.
        """
        if not isinstance(self.build, str):
            return self.build
        try:
            return pkgutil.resolve_name(self.build)  # type: ignore[no-any-return]
        except Exception as error:
            raise PluginError(
                f"{self.name!r} could not be imported from {self.build}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def make(self, *arguments: Any) -> Any:
        """Call ``build``, imported now if it is written as text.

        Raises:
            PluginError: what ``build`` names cannot be imported. What the call itself raises is
                left as it is.
        """
        return self.load()(*arguments)


class Hooks(Protocol):
    """What a plug-in may define.

    Each hook is called once, when the registry is first asked for its kind, and never while
    training or decoding.
    """

    @hookspec
    def seqtrans_tasks(self) -> list[Component]:
        """Offer tasks: what is read, how it becomes ids, and how outputs are scored.

        ``build(settings)`` gives a `seqtrans.task.Task`.
        """

    @hookspec
    def seqtrans_sources(self) -> list[Component]:
        """Offer sources: how a modality (tokens, spectrograms, …) enters the encoder.

        ``build(settings, shape, vocabulary)`` gives a module called as ``(source, mask)``, with a
        source of [B, S] ids or [B, S, …] features and a mask [B, S] that is true where there is
        something, which gives vectors [B, S', D] and their mask [B, S'].
        """

    @hookspec
    def seqtrans_positions(self) -> list[Component]:
        """Offer position schemes: how the order of a sequence reaches attention.

        ``build(settings, shape)`` gives a `seqtrans.position.PositionScheme`; one is made for each
        stack.
        """

    @hookspec
    def seqtrans_attentions(self) -> list[Component]:
        """Offer attentions: what a query may look at and how the weights are computed.

        ``build(settings, shape)`` gives a `seqtrans.attention.Attention`; one is made for each
        layer.
        """

    @hookspec
    def seqtrans_decoders(self) -> list[Component]:
        """Offer decoders: how an output is searched for.

        ``build(settings)`` gives a `seqtrans.decoding.Decoder`.
        """
