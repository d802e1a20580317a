"""What can be chosen by name: the built-ins, then the entry points of the group ``seqtrans``.

A broken plug-in does not stop the others. It is one warning when it fails, and is quoted when a
look-up fails, so that the cause stands beside the symptom.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple

import pluggy

from seqtrans import __version__
from seqtrans.errors import PluginError
from seqtrans.hooks import Component, Hooks
from seqtrans.words import did_you_mean, nearest, there_are

BUILTIN = ("seqtrans_plugins", "seqtrans_tasks")
"""Modules, not entry points, which an editable install would not see until installed again."""

KINDS = {
    "task": "seqtrans_tasks",
    "source": "seqtrans_sources",
    "position": "seqtrans_positions",
    "attention": "seqtrans_attentions",
    "decoder": "seqtrans_decoders",
}
"""The hook of each kind of component."""

DISABLE = "SEQTRANS_DISABLE_PLUGINS"
"""The environment variable that names entry points or distributions not to load, with commas."""


class Provider(NamedTuple):
    """The distribution that something comes from."""

    distribution: str
    version: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


class Offer(NamedTuple):
    """A component, and the distribution that it comes from."""

    component: Component
    distribution: str
    version: str


class Failure(NamedTuple):
    """A plug-in that is installed but not used, and why."""

    provider: Provider
    reason: str

    def __str__(self) -> str:
        return f"plug-in {self.provider} {self.reason}"


class Registry:
    """All components by kind (a key of `KINDS`) and name.

    Attributes:
        failures: plug-ins that could not be loaded, or whose hooks went wrong.
        disabled: plug-ins that ``SEQTRANS_DISABLE_PLUGINS`` keeps out.
    """

    def __init__(self, builtin: Iterable[str] = BUILTIN) -> None:
        self.failures: list[Failure] = []
        self.disabled: list[Failure] = []
        self._providers: dict[str, Provider] = {}  # by the manager's name of each plug-in
        self._offers: dict[str, dict[str, list[Offer]]] = {}  # by kind, then by name
        self._manager = pluggy.PluginManager("seqtrans")
        self._manager.add_hookspecs(Hooks)
        for module in builtin:
            self._register(
                importlib.import_module(module), module, Provider("seqtrans", __version__)
            )
        for point in sorted(entry_points(group="seqtrans"), key=lambda point: point.name):
            self._load(point)

    def get(self, kind: str, name: str) -> Component:
        """The component of that name.

        Raises:
            PluginError: there is none, or more than one.
        """
        return self._offer(kind, name).component

    def provider(self, kind: str, name: str) -> Provider:
        """Where the component of that name comes from; raises what `get` raises."""
        _, distribution, version = self._offer(kind, name)
        return Provider(distribution, version)

    def all(self, kind: str) -> list[Offer]:
        """Every component of a kind, built-ins first.

        Raises:
            PluginError: a name is offered twice.
        """
        return [self._offer(kind, name) for name in self._collect(kind)]

    def _offer(self, kind: str, name: str) -> Offer:
        offers = self._collect(kind)
        if name not in offers:
            near = nearest(name, offers)
            hint = f"did you mean {near!r}? " if near else ""
            parts = [f"no {kind} is called {name!r}", hint + there_are(offers)]
            raise PluginError("; ".join([*parts, *map(str, self.failures + self.disabled)]))
        first, *others = offers[name]
        if others:
            providers = " and ".join(f"{offer[1]} {offer[2]}" for offer in offers[name])
            raise PluginError(
                f"the {kind} {name!r} is offered more than once, by {providers}; uninstall one of "
                f"them, or name it in {DISABLE}"
            )
        return first

    def _collect(self, kind: str) -> dict[str, list[Offer]]:
        """What is offered of a kind, by name; the hook is called the first time."""
        if kind not in self._offers:
            offers: dict[str, list[Offer]] = {}
            self._offers[kind] = offers
            hook = KINDS[kind]
            for implementation in getattr(self._manager.hook, hook).get_hookimpls():
                provider = self._providers[implementation.plugin_name]
                # One by one, not by pluggy's call: what goes wrong is then known to be this one's.
                try:
                    components = listed(implementation.function())
                except Exception as error:
                    self._fail(provider, f"went wrong in its hook {hook}: {sentence(error)}")
                    continue
                for component in components:
                    known = offers.setdefault(component.name, [])
                    if all(offer.component is not component for offer in known):
                        known.append(Offer(component, *provider))
        return self._offers[kind]

    def _load(self, point: EntryPoint) -> None:
        """Load and register one entry point, whatever may happen in it."""
        provider = (
            Provider(point.dist.name, point.dist.version)
            if point.dist
            else Provider(point.module, "of unknown version")
        )
        disabled = {normal(name) for name in os.environ.get(DISABLE, "").split(",")}
        if disabled & {normal(point.name), normal(provider.distribution)}:
            self.disabled.append(Failure(provider, f"is kept out by {DISABLE}"))
            return
        try:
            plugin = point.load()
            if not self._manager.is_registered(plugin):
                self._register(plugin, f"{provider.distribution}:{point.name}", provider)
            if not self._manager.get_hookcallers(plugin):
                raise PluginError("implements no hook: mark its functions with seqtrans.hookimpl")
        except PluginError as error:
            self._fail(provider, str(error))
        except (Exception, SystemExit) as error:
            self._fail(provider, f"could not be loaded: {sentence(error)}")

    def _register(self, plugin: object, name: str, provider: Provider) -> None:
        """Register one plug-in; a PluginError says what is wrong with it, which leaves it out."""
        self._manager.register(plugin, name)
        self._providers[name] = provider
        hooks = self._manager.get_hookcallers(plugin) or []
        # pluggy's check_pending would find the misspelt ones, but not say what was meant.
        misspelt = [hook.name for hook in hooks if not hook.has_spec()]
        if misspelt:
            self._manager.unregister(plugin)
            hint = did_you_mean(misspelt[0], KINDS.values())
            raise PluginError(f"implements {misspelt[0]}, which is no hook{hint}")

    def _fail(self, provider: Provider, reason: str) -> None:
        failure = Failure(provider, reason)
        self.failures.append(failure)
        print(f"seqtrans: warning: {failure}", file=sys.stderr)


@functools.cache
def registry() -> Registry:
    """The registry of this process, made when it is first asked for."""
    return Registry()


def listed(components: object) -> list[Component]:
    """What a hook gave, if it is what it should be; else a TypeError."""
    if isinstance(components, list) and all(isinstance(c, Component) for c in components):
        return components
    raise TypeError(f"it must give a list of seqtrans.Component, not {components!r:.80}")


def sentence(error: BaseException) -> str:
    """The kind and the message of an error, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def normal(name: str) -> str:
    """A name of a distribution as the package index compares it."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def main(argv: list[str]) -> int:
    """List everything that can be chosen by name, and the distribution it comes from.

    usage: seqtrans plugins [KIND …]

    KIND is task, source, position, attention or decoder; without one, all are listed.

    example: seqtrans plugins position attention
    """
    for kind in argv:
        if kind not in KINDS:
            hint = f"{did_you_mean(kind, KINDS)}; {there_are(KINDS)}"
            raise PluginError(f"no kind of component is called {kind!r}{hint}")
    rows = [
        (
            kind,
            offer.component.name,
            offer.component.summary,
            f"{offer.distribution} {offer.version}",
        )
        for kind in argv or KINDS
        for offer in registry().all(kind)
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    for failure in registry().failures + registry().disabled:
        print(failure)
    return 0
