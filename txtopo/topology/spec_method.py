"""The method `spec` of spouts, bolts and committers, which works on the class and on an instance: streamparse's
`Component.spec()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txtopo.topology.specs import Spec


class SpecMethod:
    """`WordSpout.spec("words.txt", par=2)` creates the instance from the remaining arguments; `spout.spec(par=2)` uses
    the existing instance.

    Arguments of the spec itself are `name`, `inputs`, `par` and `config`, all by keyword; see `txtopo.spec`.
    """

    def __get__(self, instance: object | None, owner: type) -> Callable[..., Spec]:
        # Components are imported by specs, so specs cannot be imported above.
        from txtopo.topology.specs import instance_of, spec

        def method(
            *arguments: Any,
            name: str | None = None,
            inputs: Any = None,
            par: int | None = None,
            config: Any = None,
            **named: Any,
        ) -> Spec:
            component = instance_of(owner, instance, arguments, named)
            return spec(component, name=name, inputs=inputs, par=par, config=config)

        return method
