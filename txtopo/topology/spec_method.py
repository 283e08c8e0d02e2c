"""The method `spec` of spouts, bolts and committers, which works on the class and on an instance: streamparse's
`Component.spec()`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from txtopo.topology.specs import InputSpecs, Spec


class MakeSpec(Protocol):
    """What `spec` of a component is called with; other arguments are those of its class."""

    def __call__(
        self,
        *arguments: object,
        name: str | None = None,
        inputs: InputSpecs = None,
        par: int | None = None,
        config: Mapping[str, Any] | None = None,
        **named: object,
    ) -> Spec: ...


class SpecMethod:
    """`WordSpout.spec("words.txt", par=2)` creates the instance from the remaining arguments; `spout.spec(par=2)` uses
    the existing instance.

    Arguments of the spec itself are `name`, `inputs`, `par` and `config`, all by keyword; see `txtopo.spec`.
    """

    def __get__(self, instance: object | None, owner: type) -> MakeSpec:
        # Components are imported by specs, so specs cannot be imported above.
        from txtopo.topology.specs import instance_of, spec

        def method(
            *arguments: object,
            name: str | None = None,
            inputs: InputSpecs = None,
            par: int | None = None,
            config: Mapping[str, Any] | None = None,
            **named: object,
        ) -> Spec:
            component = instance_of(owner, instance, arguments, named)
            return spec(component, name=name, inputs=inputs, par=par, config=config)

        return method
