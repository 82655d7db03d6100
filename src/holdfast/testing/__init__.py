"""For those who test workflows: simulated time, processes that die when told to, and the real product between them."""
