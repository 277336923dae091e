"""Find the best sampler for 10 calls: python examples/tutorials/tune.py

Candidates are compared with the model's long run on common random numbers; the best is confirmed on seeds that the
search never saw. The same as `isostep tune grum-community-small --calls 10 --out tuned.toml`.
"""

import isostep


def main(name: str = "grum-community-small", calls: int = 10, **options) -> None:
    record = isostep.tune(name, calls, out="tuned.toml", **options)
    print(record.reason)

    model = isostep.load_model(name, preset="tuned.toml")
    result = isostep.sample(model, 16, calls=calls)
    print(result, result.settings.schedule, result.settings.solver, result.settings.solver_options)


if __name__ == "__main__":
    main()
