"""Scans for tests: a block in a volume, and series of DICOM files."""

import numpy as np


def block(shape=(6, 8, 10)):
    """Return a volume that has no symmetry: a bright block on a ramp."""
    volume = np.arange(np.prod(shape)).reshape(shape) % 50
    volume[1:3, 2:5, 4:8] = 90
    return volume.astype(np.uint8)


def write_series(folder, values, spacing=(3.0, 1.0, 1.0), name="slice", shuffled=False):
    """Write slices, from head to feet, as a CT series; return the paths in the order of names."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, generate_uid

    series, count = generate_uid(), len(values)
    places = np.random.default_rng(0).permutation(count) if shuffled else np.arange(count)
    paths = []
    for number, at in enumerate(places):
        head = Dataset()
        head.file_meta = FileMetaDataset()
        head.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        head.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.2"
        head.file_meta.MediaStorageSOPInstanceUID = generate_uid()
        head.SOPClassUID = head.file_meta.MediaStorageSOPClassUID
        head.SOPInstanceUID = head.file_meta.MediaStorageSOPInstanceUID
        head.SeriesInstanceUID, head.Modality, head.InstanceNumber = series, "CT", number + 1
        head.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
        head.ImagePositionPatient = [-10, -20, spacing[0] * (count - 1 - int(at))]
        head.PixelSpacing = list(spacing[1:])
        head.RescaleSlope, head.RescaleIntercept = 1, -1024
        head.WindowCenter, head.WindowWidth = 40, 400
        head.Rows, head.Columns = values.shape[1:]
        head.SamplesPerPixel, head.PhotometricInterpretation = 1, "MONOCHROME2"
        head.BitsAllocated = head.BitsStored = 16
        head.HighBit, head.PixelRepresentation = 15, 1
        head.PixelData = values[at].astype(np.int16).tobytes()
        paths.append(folder / f"{name}{number + 1}.dcm")
        head.save_as(paths[-1], enforce_file_format=True)
    return paths
