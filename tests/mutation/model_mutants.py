"""Bugs to plant in model folders, the encoder-decoder and the data."""

from mutant_kind import Mutant

WHOLE = ("models/test_seq2seq_properties.py", "models/test_torch_parity.py", "models/test_seq2seq.py")
FOLDER = ("models/test_hostile_folder.py", "models/test_model_io.py")

IN_MODELS = [
    Mutant(
        "the encoder reads padding",
        "models/seq2seq.py",
        "mask = None if source_mask is None else padding_mask(source_mask)",
        "mask = None",
        WHOLE,
    ),
    Mutant(
        "positions restart at each cached step",
        "models/seq2seq.py",
        "positions = torch.arange(n_past, n_past + n_new, device=target.device)",
        "positions = torch.arange(n_new, device=target.device)",
        WHOLE,
    ),
    Mutant(
        "a cached step of two tokens is not causal",
        "models/seq2seq.py",
        "if self.needs_causal_mask and n_new > 1:",
        "if self.needs_causal_mask and n_new > 2:",
        WHOLE,
    ),
    Mutant(
        "a pattern in the decoder is not causal",
        "models/seq2seq.py",
        "attention=self.self_attention(causal=True)",
        "attention=self.self_attention(causal=False)",
        WHOLE,
    ),
    Mutant(
        "a pre-norm stack has no final norm",
        "models/seq2seq.py",
        'if self.config.residual == "pre" else None',
        'if self.config.residual == "post" else None',
        ("models/test_torch_parity.py",),
    ),
    Mutant(
        "selected rows of a memory keep the padding mask of other rows",
        "nn/stacks.py",
        "None if self.mask is None else self.mask[index]",
        "self.mask",
        ("models/test_seq2seq.py",),
    ),
    Mutant(
        "weights with NaN or infinity are loaded",
        "models/weights.py",
        "if not torch.isfinite(tensor).all():",
        "if torch.isnan(tensor).all():",
        FOLDER,
    ),
    Mutant(
        "only the source vocabulary is compared with the tokenizer",
        "models/model_io.py",
        '"target tokenizer": (tokenizers.target.vocab_size, config.target_vocab_size),',
        '"target tokenizer": (tokenizers.target.vocab_size, tokenizers.target.vocab_size),',
        FOLDER,
    ),
    Mutant(
        "files that the manifest does not list are accepted",
        "models/model_io.py",
        "_check_listed(folder, check_manifest(folder))",
        "check_manifest(folder)",
        FOLDER,
    ),
    Mutant(
        "tied weights are not shared again after loading",
        "models/model_io.py",
        "    model.tie()\n",
        "    model.head.linear.weight = nn.Parameter(model.target_embedding.table.weight.detach().clone())\n",
        FOLDER,
    ),
]

IN_DATA = [
    Mutant(
        "a batch exceeds the token budget by one row",
        "data/batch_sampler.py",
        "(rows * longest_target <= batch_tokens)",
        "((rows - 1) * longest_target <= batch_tokens)",
        ("data/test_batch_sampler.py",),
    ),
    Mutant(
        "a corpus with a small weight has the same examples in every epoch",
        "data/batch_sampler.py",
        "begin, end = floor(epoch * share), floor((epoch + 1) * share)",
        "begin, end = 0, floor(share)",
        ("data/test_batch_sampler.py",),
    ),
    Mutant(
        "the token budget of the source is ignored",
        "data/batch_sampler.py",
        "& (rows * longest_source <= source_tokens)",
        "& (longest_source <= source_tokens)",
        ("data/test_batch_sampler.py",),
    ),
    Mutant(
        "the examples that are used are reported as left out",
        "data/batch_sampler.py",
        "left_out=np.flatnonzero(~fits)",
        "left_out=np.flatnonzero(fits)",
        ("data/test_batch_sampler.py",),
    ),
    Mutant(
        "the loader's state counts prefetched batches",
        "data/loader.py",
        "self._state = after",
        "self._state = self._next",
        ("data/test_loader.py",),
    ),
    Mutant(
        "all batches of an epoch share their random numbers",
        "data/loader.py",
        "derived_seed(seed, epoch, position)",
        "derived_seed(seed, epoch)",
        ("data/test_loader.py",),
    ),
    Mutant(
        "every rank gets the first rank's part of a batch",
        "data/loader.py",
        "split_rows(*lengths, self.n_ranks)[self.rank]",
        "split_rows(*lengths, self.n_ranks)[0]",
        ("data/test_loader.py",),
    ),
    Mutant(
        "the decoder's input is not shifted",
        "data/collate.py",
        "target_in[row, 1 : len(ids) + 1] = ids",
        "target_in[row, : len(ids)] = ids",
        ("data/test_collate.py",),
    ),
    Mutant(
        "the end of a target is no label",
        "data/collate.py",
        "target_mask = _mask([len(ids) + 1 for ids in targets])",
        "target_mask = _mask([max(1, len(ids)) + 1 for ids in targets])\n"
        "    target_mask[range(len(targets)), [len(ids) for ids in targets]] = False",
        ("data/test_collate.py",),
    ),
    Mutant(
        "a masked span begins one token too early",
        "data/noising.py",
        "at = np.flatnonzero(begins[hidden])",
        "at = np.flatnonzero(begins[hidden]) + 1",
        ("data/test_noising.py",),
    ),
    Mutant(
        "90 % of the chosen tokens become the mask token instead of 80 %",
        "data/noising.py",
        "noised[chosen & (dice < 0.8)] = mask_id",
        "noised[chosen & (dice < 0.9)] = mask_id",
        ("data/test_noising.py",),
    ),
    Mutant(
        "special tokens are masked too",
        "data/noising.py",
        "return np.unique([*special_ids.all_ids, *protected, *more])",
        "return np.unique([*protected, *more])",
        ("data/test_noising.py",),
    ),
    Mutant(
        "positions of packed documents do not restart",
        "data/datasets.py",
        "positions[columns] = np.arange(stop - at)",
        "positions[columns] = np.arange(at - begin, stop - begin)",
        ("data/test_datasets.py",),
    ),
    Mutant(
        "a carriage return without a line feed is removed",
        "data/lines.py",
        'if content[-1:] == b"\\r" and raw[-1:] == b"\\n":',
        'if content[-1:] == b"\\r":',
        ("data/test_lines.py",),
    ),
]
