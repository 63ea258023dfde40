"""What an id is called in a converted model: by its number, whatever piece it stands for."""


def source_token(number: int) -> str:
    """What a source id is called there. Not as the target's: CTranslate2 answers a source that holds only marks
    without asking the model, and knows marks by their names.
    """
    return f"s{number}"


def target_token(number: int) -> str:
    return str(number)
