"""Sample a released file: python examples/tutorials/released.py gdss_qm9.pth qm9

The file is read as it is and never executed. `auto` is what was measured to be best for the model, at 50 calls here.
"""

import sys

import isostep


def main(file: str, reference: str, n: int = 256) -> None:
    model = isostep.load_model(file)
    print(f"{model.info.name}: {model.info.family}, {model.info.kind}s of up to {model.info.max_nodes} nodes")

    result = isostep.sample(model, n, calls=50, seed=0)
    print(result, result.settings.schedule, result.settings.solver)
    print(result.items[0])

    print(isostep.evaluate(result, reference, metrics=["valid", "nspdk"]))

    again = isostep.sample(model, 1, start=3, calls=50, seed=0)  # graph 3 alone: the same graph
    print("the same graph:", again.lines()[0] == result.lines()[3] or "the corrector of this preset couples a batch")


if __name__ == "__main__":
    main(*sys.argv[1:3])
