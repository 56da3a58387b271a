"""Conversations that share nothing with one another: the first words differ."""

import random

WORDS = (
    "the parcel harbour because value system morning answer with and of window returns function message list "
    "careful between another report engine router is was not should letters tomorrow station customer weather to "
    "in a for which holds block token first second explains example number table under quick slow memory"
).split()


def text(seed, words):
    chance = random.Random(seed)
    return " ".join(chance.choice(WORDS) for _ in range(words)).capitalize() + "."


def system(name):
    """Some 400 tokens."""
    return f"You are {name}. " + text(name, 300)


WEATHER = {
    "name": "get_weather",
    "description": "The weather at a place",
    "parameters": {
        "type": "object",
        "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["place", "days"],
    },
}
