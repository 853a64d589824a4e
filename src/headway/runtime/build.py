"""From a `RunSpec` to live objects: networks on meta -> sharded -> materialised with keyed weights -> optimizers, EMA.

The weights a run starts from depend on the seed and the parameter's name alone, so every layout starts from the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

from headway.data.dataset import Dataset
from headway.diffusion import objective as objectives
from headway.nn import registry
from headway.nn.init import init_weights
from headway.parallel import fsdp, remat
from headway.parallel.mesh import Mesh
from headway.runtime import optim
from headway.runtime.ema import Ema
from headway.spec.errors import RunError
from headway.spec.parts import RoleSpec
from headway.spec.run import RunSpec, at_samples

MASTER_DTYPES: Final = {"fp32": torch.float32, "bf16": torch.float32, "fp64": torch.float64}  # by precision.compute


@dataclass(kw_only=True)
class TrainState:
    """What a training step changes. `roles` holds every network by its name in the objective; `optimizers` those that are trained."""

    spec: RunSpec
    device: torch.device
    mesh: Mesh
    roles: dict[str, nn.Module]
    optimizers: dict[str, torch.optim.Optimizer]
    ema: Ema | None
    objective: Callable[..., objectives.LossOut]
    data_name: str
    samples: int = 0  # samples seen: the clock of the run
    _begun: tuple[int, RunSpec] | None = None

    def current(self) -> RunSpec:
        """The spec as it is now: with the stages that have begun."""
        begun = sum(s.at <= self.samples for s in self.spec.stages)
        if self._begun is None or self._begun[0] != begun:
            self._begun = begun, at_samples(self.spec, self.samples)
        return self._begun[1]

    @property
    def step(self) -> int:
        """Optimizer steps done."""
        return -(-self.samples // self.spec.global_batch)

    @property
    def dtype(self) -> torch.dtype:
        """Number format of samples and master weights."""
        return MASTER_DTYPES[self.spec.precision.compute]


def build(
    spec: RunSpec, data: Dataset, mesh: Mesh, device: torch.device, *, load_role: Callable[[RoleSpec], Mapping[str, Any]] | None
) -> TrainState:
    """The state of a run at its start, on this rank.

    `load_role` reads the weights of a role that does not start as the student does; None: a checkpoint is going to be loaded, which holds
    them, since their source may be gone by then.
    """
    roles = {"student": network(spec, data, mesh, device, trained=True)}
    optimizers: dict[str, torch.optim.Optimizer] = {"student": optim.build_optimizer(roles["student"], spec.optim, spec.optim.lr)}
    for role in spec.roles:
        net = network(spec, data, mesh, device, trained=role.trained)
        if role.init != "student" and load_role is not None:
            _fill(net, load_role(role), role)
        roles[role.name] = net
        if role.trained:
            optimizers[role.name] = optim.build_optimizer(net, spec.optim, spec.optim.lr if role.lr is None else role.lr)
    return TrainState(
        spec=spec,
        device=device,
        mesh=mesh,
        roles=roles,
        optimizers=optimizers,
        ema=Ema(roles["student"], spec.ema.half_life) if spec.ema.half_life else None,
        objective=objectives.build(spec.objective),
        data_name=data.name,
    )


def bare_network(spec: RunSpec, data: Dataset) -> nn.Module:
    """The network of `spec` for samples of `data`, on the current default device (use `with torch.device("meta")`)."""
    return registry.build(spec.model, channels=data.channels, size=data.size, num_classes=data.num_classes)


def network(spec: RunSpec, data: Dataset, mesh: Mesh, device: torch.device, *, trained: bool) -> nn.Module:
    """The network of `spec`: rematerialised and sharded as the spec says, with its starting weights. Frozen ones take no gradient."""
    with torch.device("meta"):
        net = bare_network(spec, data).to(MASTER_DTYPES[spec.precision.compute])
    net.requires_grad_(trained)
    if trained:
        remat.apply(net, spec.remat.mode)
    fsdp.shard(net, mesh, spec.precision, reshard=spec.mesh.reshard)
    net.to_empty(device=device)
    fill_buffers(net, lambda: bare_network(spec, data), spec.seed)
    init_weights(net, seed=spec.seed, mode=spec.model.init)
    return net.train(trained)


def fill_buffers(net: nn.Module, make: Callable[[], nn.Module], seed: int) -> None:
    """Values of buffers, which the meta device has lost: of the network that `make` builds once more on the host. Ours have none.

    Random ones (Fourier frequencies) follow from the seed, so that all ranks and all lives of a run have the same.
    """
    empty = dict(net.named_buffers())
    if not empty:
        return
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        full = dict(make().named_buffers())
    for name, buffer in empty.items():
        buffer.copy_(full[name])


def _fill(net: nn.Module, tensors: Mapping[str, Any], role: RoleSpec) -> None:
    """Copy full tensors into a (sharded) network. Raises RunError if they are not the same ones."""
    own = net.state_dict()
    wrong = sorted(own.keys() ^ tensors.keys()) or [n for n, p in own.items() if tuple(p.shape) != tuple(tensors[n].shape)]
    if wrong:
        raise RunError(
            f"the weights of {role.init} do not fit the network: {', '.join(wrong[:3])}{' ...' if len(wrong) > 3 else ''}",
            where=f"role {role.name}",
            fix="A role has the architecture of the student; give a run with the same model fields.",
        )
    for name, tensor in own.items():
        fsdp.write_full(tensor, tensors[name])


# ---- what a checkpoint holds ----


def saved(state: TrainState) -> dict[str, Any]:
    """The live tensors of a checkpoint, under names that no layout changes: <role>.model, <role>.optim, ema. Writing into them restores.

    Frozen roles that start as the student does are rebuilt from the seed; loaded ones are kept, since their source may go.
    """
    rebuilt = {r.name for r in state.spec.roles if not r.trained and r.init == "student"}
    tree: dict[str, Any] = {f"{name}.model": dict(net.state_dict()) for name, net in state.roles.items() if name not in rebuilt}
    tree |= {f"{name}.optim": optim.state(state.roles[name], optimizer) for name, optimizer in state.optimizers.items()}
    if state.ema is not None:
        tree["ema"] = state.ema.state()
    return tree
