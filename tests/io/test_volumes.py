"""Volumes: axes, spacing, window and place of NIfTI files and DICOM series; what is refused."""

import numpy as np
import pytest

from densecrf.io.errors import FileFormatError
from densecrf.io.volumes import one_of_each_series, read_volume, write_nifti_labels
from scans import block, write_series

nibabel = pytest.importorskip("nibabel")


@pytest.mark.parametrize("codes", ["RAS", "LPI", "PIR", "SAL"])
def test_a_nifti_file_of_any_orientation_is_shown_alike_and_labels_go_back(tmp_path, codes):
    """However the axes are stored, slices go to the feet, rows to the back, columns to the left."""
    shown = block()  # (slices, rows, columns)
    to_shown = np.diag([-2.0, -3.0, -5.0, 1.0])  # left, back, feet; millimetres
    image = nibabel.Nifti1Image(np.swapaxes(shown, 0, 2), to_shown)
    orientations = nibabel.orientations
    turn = orientations.ornt_transform(
        nibabel.io_orientation(image.affine), orientations.axcodes2ornt(codes)
    )
    image = image.as_reoriented(turn)
    assert "".join(nibabel.aff2axcodes(image.affine)) == codes
    nibabel.save(image, tmp_path / "scan.nii.gz")
    volume = read_volume(tmp_path / "scan.nii.gz")
    np.testing.assert_array_equal(volume.values, shown)
    assert volume.spacing == (5, 3, 2)

    write_nifti_labels(tmp_path / "labels.nii.gz", shown > 50, volume.geometry)
    labels = nibabel.load(tmp_path / "labels.nii.gz")
    np.testing.assert_allclose(labels.affine, image.affine)
    np.testing.assert_array_equal(np.asarray(labels.dataobj), np.asarray(image.dataobj) > 50)


def test_stored_values_of_nifti_are_scaled_and_several_volumes_are_bands(tmp_path):
    image = nibabel.Nifti1Image(
        np.arange(2 * 3 * 4 * 2, dtype=np.int16).reshape(2, 3, 4, 2), np.eye(4)
    )
    image.header.set_slope_inter(0.5, -10)
    nibabel.save(image, tmp_path / "two.nii")
    volume = read_volume(tmp_path / "two.nii")
    assert volume.values.shape == (4, 3, 2, 2)
    expected = np.sort(np.asarray(nibabel.load(tmp_path / "two.nii").dataobj), axis=None)
    np.testing.assert_allclose(np.sort(volume.meant(volume.values), axis=None), expected)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("empty.nii", b"", "NIfTI"),
        ("noise.nii.gz", b"\x1f\x8b" + b"x" * 100, "NIfTI"),
        ("text.dcm", b"hello", "DICOM"),
    ],
)
def test_broken_files_are_refused_by_name_with_a_remedy(tmp_path, name, data, said):
    pytest.importorskip("pydicom")
    (tmp_path / name).write_bytes(data)
    with pytest.raises(FileFormatError, match=said) as error:
        read_volume(tmp_path / name)
    assert error.value.path == str(tmp_path / name)


def test_a_truncated_nifti_file_is_refused(tmp_path):
    nibabel.save(nibabel.Nifti1Image(block(), np.eye(4)), tmp_path / "whole.nii")
    data = (tmp_path / "whole.nii").read_bytes()
    (tmp_path / "half.nii").write_bytes(data[: len(data) // 2])
    with pytest.raises(FileFormatError, match="broken or truncated"):
        read_volume(tmp_path / "half.nii")


def test_too_many_voxels_are_refused_before_they_are_read(tmp_path):
    nibabel.save(nibabel.Nifti1Image(block(), np.eye(4)), tmp_path / "large.nii")
    with pytest.raises(FileFormatError, match="crop or shrink"):
        read_volume(tmp_path / "large.nii", most=100)


def test_a_dicom_file_stands_for_its_series(tmp_path):
    """Slices are sorted by place, from head to feet, whatever the names of the files."""
    pytest.importorskip("pydicom")
    values = block().astype(np.int16) * 10
    paths = write_series(tmp_path, values, spacing=(5.0, 0.8, 0.7), shuffled=True)
    volume = read_volume(paths[2])
    np.testing.assert_array_equal(volume.meant(volume.values), values.astype(np.float32) - 1024)
    np.testing.assert_allclose(volume.spacing, (5.0, 0.8, 0.7))
    assert volume.window == (-160, 240)
    assert volume.unit == "HU"
    write_nifti_labels(tmp_path / "labels.nii.gz", values > 500, volume.geometry)
    labels = nibabel.load(tmp_path / "labels.nii.gz")
    assert nibabel.aff2axcodes(labels.affine) == ("L", "P", "I")
    # The first voxel of the top slice lies where its file says, left and back negated.
    np.testing.assert_allclose(labels.affine[:3, 3], (10, 20, 5.0 * (len(values) - 1)))


def test_a_folder_lists_one_file_of_each_series(tmp_path):
    pytest.importorskip("pydicom")
    first = write_series(tmp_path, block().astype(np.int16), name="a")
    second = write_series(tmp_path, block().astype(np.int16), name="b")
    photo = tmp_path / "photo.png"
    assert one_of_each_series([photo, *first, *second]) == [photo, first[0], second[0]]


@pytest.mark.parametrize("wrong", ["size", "place"])
def test_a_series_that_is_no_volume_is_refused_with_a_remedy(tmp_path, wrong):
    pydicom = pytest.importorskip("pydicom")
    paths = write_series(tmp_path, block().astype(np.int16))
    odd = pydicom.dcmread(paths[0])
    if wrong == "size":
        odd.Rows, odd.PixelData = 2, odd.PixelData[: 2 * odd.Columns * 2]
    else:
        odd.ImagePositionPatient = pydicom.dcmread(paths[1]).ImagePositionPatient
    odd.save_as(paths[0])
    with pytest.raises(FileFormatError, match="folder of their own"):
        read_volume(paths[1])
