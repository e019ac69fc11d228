"""Where a model comes from: a name, a path, a zip -> its parts, checked.

    resolve     what the user wrote -> one of the loaders below
    modeldir    our own format: a folder of config.json + model.safetensors + ...
    hdf5dir     the format of bilm-tf and AllenNLP: options.json + one HDF5 file
    archive     either of them in a zip
    published   names such as `allennlp:original`, fetched once into a cache
    download    a file over HTTP, resumed where it stopped

Nothing here runs code from a file: weights are safetensors or HDF5, the rest is JSON and text.
"""
