"""All-for-one and All-for-all: learning from those who are alike."""
