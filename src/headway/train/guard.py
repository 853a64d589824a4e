"""The guard: what happens when a loss or a gradient is not finite.

The step itself leaves out the update on the device, without asking the host (policies stop and skip). The host hears of it when it waits
anyway: at a log line, and before a checkpoint is made. All ranks judge the same flags, so all take the same branch.
"""

from __future__ import annotations

import torch

from headway.parallel import fsdp
from headway.spec.errors import RunError
from headway.train.loop import Hook, Running
from headway.train.step import StepOut


class Guard(Hook):
    """A hook that keeps the flag of every step until `judge` looks at them. `tainted`: the weights may not be finite any more."""

    def __init__(self) -> None:
        self._pending: list[tuple[int, str, torch.Tensor]] = []  # step, the policy that it ran under, whether it was finite
        self._policy = ""
        self.tainted = False

    def before(self, run: Running) -> None:
        """Note the policy: a stage may change it between a step and its judgement."""
        self._policy = run.state.current().guard.nonfinite

    def after(self, run: Running, out: StepOut) -> None:
        """Keep the flag."""
        self._pending.append((out.step, self._policy, out.ok))

    def close(self, run: Running) -> None:
        """Judge what is left."""
        self.judge(run)

    def judge(self, run: Running) -> None:
        """Look at the flags since the last time (waits for the device). Raises RunError under policy stop, tells under the others."""
        pending, self._pending = self._pending, []
        oks = torch.stack([ok for *_, ok in pending]).tolist() if pending else []
        for policy in ("off", "skip", "stop"):  # what cannot be undone first, what ends the run last
            if bad := [step for (step, ran_under, _), ok in zip(pending, oks, strict=True) if not ok and ran_under == policy]:
                self._say(run, policy, bad)

    def require_finite_weights(self, run: Running) -> None:
        """Look at the weights themselves before they are saved: a finite gradient can still carry them to infinity. All ranks call it.

        Raises RunError, whatever the policy: such a checkpoint could only be resumed into the same end.
        """
        nets = [run.state.roles[name] for name in run.state.optimizers]
        parts = [fsdp.local(p.detach()) for net in nets for p in fsdp.parameters_of(net).values()]
        bad = torch.stack([(~torch.isfinite(p)).sum() for p in parts if p.numel()]).sum().double().reshape(1)
        if count := int(run.state.mesh.all_sum(bad).item()):
            raise RunError(
                f"{count:,} weights are not finite after step {run.state.step - 1}; they were not saved",
                where=f"run {run.path.name}",
                fix="Lower --optim.lr (or lengthen --optim.warmup); the same command resumes from the last checkpoint.",
            )

    def _say(self, run: Running, policy: str, bad: list[int]) -> None:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        text = f"the loss or the gradient was not finite in step {bad[0]}{more}"
        if policy == "stop":
            raise RunError(
                f"{text}; the update of that step was left out and nothing after it was saved",
                where=f"run {run.path.name}",
                fix="The same command resumes from the last checkpoint; lower --optim.lr, or go on with --guard.nonfinite skip.",
            )
        if policy == "skip":
            run.tell("warning", f"{text}; the update was left out")
        elif not self.tainted:
            self.tainted = True
            run.tell("warning", f"{text}; the guard is off, so the run goes on, but saves no checkpoint any more")
