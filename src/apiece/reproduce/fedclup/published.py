"""Accuracy on the global test set as the FedCLUP paper prints it, by task and number of classes a client holds."""

HIGH, MEDIUM, LOW = "high", "medium", "low"
DEGREES = (HIGH, MEDIUM, LOW)  # of personalization: lambda grows
LADDERS = ("fed_clup", "pfedme")

# FedCLUP at high, medium and low personalization; Global; Local; pFedMe at the three.
_PRINTED = {
    "MNIST logit": {
        2: (0.5001, 0.6011, 0.6109, 0.7001, 0.3214, 0.5534, 0.6312, 0.6712),
        6: (0.6813, 0.7001, 0.7241, 0.7718, 0.6000, 0.6312, 0.7123, 0.7681),
        10: (0.8123, 0.8213, 0.8312, 0.8391, 0.7828, 0.8001, 0.8239, 0.8291),
    },
    "MNIST CNN2": {
        2: (0.3567, 0.4721, 0.6019, 0.6123, 0.3019, 0.3973, 0.5828, 0.6172),
        6: (0.7001, 0.7833, 0.7843, 0.8092, 0.6231, 0.7918, 0.8093, 0.8312),
        10: (0.8753, 0.8893, 0.9032, 0.9098, 0.8194, 0.8756, 0.8771, 0.8749),
    },
    "MNIST CNN5": {
        2: (0.8891, 0.9000, 0.9333, 0.9377, 0.6536, 0.9000, 0.9003, 0.9380),
        6: (0.8451, 0.8941, 0.9392, 0.9446, 0.7333, 0.9288, 0.9186, 0.9306),
        10: (0.9091, 0.9102, 0.9421, 0.9433, 0.7633, 0.9340, 0.9385, 0.9440),
    },
    "CIFAR CNN3": {
        2: (0.6101, 0.6292, 0.6340, 0.6444, 0.5801, 0.6056, 0.6012, 0.6033),
        6: (0.6211, 0.6311, 0.6712, 0.6949, 0.5623, 0.6163, 0.6163, 0.6439),
        10: (0.6102, 0.6712, 0.7302, 0.8041, 0.6238, 0.6744, 0.7443, 0.7732),
    },
}


# Averaged model, by classes held: Local, FedCLUP at high, medium and low personalization, Global, by other code.
INDEPENDENT = {
    2: (0.35, 0.42, 0.51, 0.54, 0.66),
    6: (0.60, 0.73, 0.77, 0.77, 0.81),
    10: (0.78, 0.83, 0.83, 0.83, 0.84),
}


def rung(method: str, degree: str) -> str:
    """The name of a method at a degree of personalization.

    >>> rung("fed_clup", HIGH)
    'fed_clup high'
    """
    return f"{method} {degree}"


def published(task: str, held: int) -> dict[str, float]:
    """By method.

    >>> published("MNIST logit", 2)["fed_avg"]
    0.7001
    """
    clup, pfedme = ([rung(method, degree) for degree in DEGREES] for method in LADDERS)
    return dict(zip((*clup, "fed_avg", "local", *pfedme), _PRINTED[task][held], strict=True))
