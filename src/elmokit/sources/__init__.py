"""Load models from all supported sources.

    resolve     choose one of the loaders below
    modeldir    elmokit's format: a directory of config.json, model.safetensors, ...
    hdf5dir     the format of bilm-tf and AllenNLP: options.json and an HDF5 file
    tfdir       training checkpoints of bilm-tf
    onnxdir     ONNX models, which do not need torch
    archive     models in zip files
    published   names such as `allennlp:original`, downloaded once to a cache
    package     models in installed packages
    hub         `hf://user/model`, downloaded and cached by huggingface_hub
    download    files over HTTP; interrupted downloads are resumed

Loading a file never executes code: weights are safetensors, HDF5 or TensorFlow checkpoints, and
other files are JSON and text. The pickles of ELMoForManyLangs are read with `weights_only=True`.
"""
