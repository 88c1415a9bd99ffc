"""FedCLUP: personalization against communication."""
