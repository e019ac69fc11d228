"""Where a model comes from: a name, a path, a zip -> its parts, checked.

    resolve     what the user wrote -> one of the loaders below
    modeldir    our own format: a folder of config.json + model.safetensors + ...
    hdf5dir     the format of bilm-tf and AllenNLP: options.json + one HDF5 file
    tfdir       a checkpoint of bilm-tf's training
    manylangs   a model of ELMoForManyLangs
    onnxdir     a model in ONNX, opened without torch
    archive     a model in a zip
    published   names such as `allennlp:original`, fetched once into a cache
    hub         `hf://user/model`, fetched and kept by huggingface_hub
    download    a file over HTTP, resumed where it stopped

Nothing here runs code from a file: weights are safetensors, HDF5 or TensorFlow's own tables, the
rest is JSON and text. The pickles of ELMoForManyLangs are read by torch's reader of tensors alone.
"""
