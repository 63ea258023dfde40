"""What a model does in a search: the newest token of each row in, the logits of the next out.

    encoder_decoder     what a step needs of a model that reads one text and writes another
    reference           through the model itself, for every variant
    quick, gpt          laid out for speed: encoder-decoders with full attention, decoder-only models
    columns, packed     what a fast step is made of: the past that it keeps, the weights
    together            several models at once: the mean of what they say
    lookahead           several tokens guessed, and checked in one step

Fast or not, the numbers are the model's own: tests hold them equal.
"""
