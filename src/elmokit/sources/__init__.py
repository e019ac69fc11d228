"""Load models from all supported sources.

    resolve     choose one of the loaders below
    modeldir    elmokit's format: a directory of config.json, model.safetensors, ...
    hdf5dir     the bilm-tf and AllenNLP format: options.json and an HDF5 file
    tfdir       bilm-tf training checkpoints
    onnxdir     ONNX models, which do not need torch
    archive     models in zip files
    published   published models such as `allennlp:original`, downloaded once and cached
    package     models in installed packages
    hub         models such as `hf://user/model`, downloaded and cached by huggingface_hub
    download    download files over HTTP, and resume interrupted downloads

Loading a file never executes code: weights are safetensors, HDF5 or TensorFlow checkpoints, and
other files are JSON and text. ELMoForManyLangs pickles are read with `weights_only=True`.
"""
