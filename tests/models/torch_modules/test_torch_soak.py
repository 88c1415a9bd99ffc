"""It never hangs: ten thousand steps on two devices at once, in a process of their own, with a deadline."""

import faulthandler
import os
import subprocess
import sys
import time

import pytest

SECONDS = 400
CLIENTS, STEPS, ROUNDS = 10, 100, 10


@pytest.mark.slow
def test_ten_thousand_steps_on_two_devices_end():
    pytest.importorskip("torch")
    ended = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=SECONDS + 30)
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert ended.stdout.startswith("10000 steps")


def soak():
    import jax
    import torch

    import apiece
    from apiece.models.failures import raise_failures
    from apiece.models.torch.module import from_torch

    class Wide(torch.nn.Module):
        """Cheap to compute, but with a matrix of 2 MB: large arrays are copied in another way than small ones."""

        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(1, 16, 3, padding=1)
            self.drop = torch.nn.Dropout(0.1)
            self.hidden = torch.nn.Linear(1024, 512)
            self.out = torch.nn.Linear(512, 10)

        def forward(self, x):
            x = torch.relu(self.conv(x.reshape(-1, 1, 8, 8).float() / 16))
            return self.out(torch.relu(self.hidden(self.drop(x.flatten(1)))))

    threads = torch.get_num_threads()
    torch.manual_seed(0)
    model, federation = from_torch(Wide()), apiece.data.digits(clients=CLIENTS)
    began = time.monotonic()
    how = dict(rounds=ROUNDS, evaluate_every=5, options={"steps": STEPS, "batch": 8, "lr": 0.05})
    fitted = apiece.fit("fed_avg", model, federation, objective=model.objective, **how)
    raise_failures()
    steps, error = fitted.costs["gradients"], fitted.curve[-1]["validation_error"]
    print(f"{steps} steps in {time.monotonic() - began:.1f} s, validation error {error:.3f}")
    assert len(jax.devices()) == 2 and steps == CLIENTS * STEPS * ROUNDS
    assert error < 0.3
    assert torch.get_num_threads() == threads


if __name__ == "__main__":
    faulthandler.dump_traceback_later(SECONDS, exit=True)  # a hang shows everybody's stack, and fails
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    soak()
